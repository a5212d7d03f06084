#include "balance/costs/profile.h"

#include <catch2/catch.hpp>

#include "balance/costs/cost_model.h"
#include "balance/costs/profile_fit.h"
#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/presets.h"
#include "tests/data/temporary_folder.h"
#include "tests/models/load_of.h"

namespace equipoise {
namespace {

constexpr int64_t kRows = 65;  // of a tile of the quickstart

LayerLoad Load(int64_t tiles, int64_t tokens) {
  return LoadOf(PresetConfig("quickstart"), tiles, tokens);
}

int64_t TilesOf(const LayerLoad& load) { return load.patches / kRows; }

LayerLoad Packed() {
  LayerLoad load = Load(2, 512);
  load.token_pairs = 4 * 128 * 129 / 2.0;
  load.targets = 0;
  return load;
}

// Layers of the quickstart whose times follow a rule; kept and work bytes are not measured.
Profile QuickstartProfile() {
  const ModelConfig model = PresetConfig("quickstart");
  Profile profile;
  profile.device = "Some Processor 9000";
  profile.versions = "equipoise 0.1, libtorch 2.0";
  profile.precision = "fp32";
  profile.threads = 1;
  profile.optimizer_s_per_parameter = 2e-9;
  profile.point_to_point = {1e-5, 1e9};
  profile.all_reduce = {2e-5, 5e8};
  profile.host_link_bytes_per_s = 2.5e10;
  const std::vector<LayerSpec> specs = LayerSpecs(model);
  for (size_t i = 0; i < specs.size(); ++i) {
    if (i > 0 && specs[i].kind == specs[i - 1].kind) continue;
    for (const LayerLoad& load :
         {Load(1, 64), Load(4, 256), Load(8, 512), Load(0, 512), Load(16, 300), Packed()}) {
      LayerMeasurement m;
      m.layer_kind = specs[i].kind;
      m.shape = specs[i].shape;
      m.load = load;
      m.forward_s = 1e-5 + 1e-4 * static_cast<double>(TilesOf(load)) +
                    2e-6 * static_cast<double>(load.tokens) + 3e-9 * load.token_pairs;
      m.input_gradient_s = 1.5 * m.forward_s;
      m.weight_gradient_s = 0.5 * m.forward_s;
      m.backward_s = 2 * m.forward_s;
      profile.layers.push_back(m);
    }
  }
  return profile;
}

TEST_CASE("a profile is read as it was written", "[balance][cpu]") {
  const TemporaryFolder folder;
  Profile profile = QuickstartProfile();
  profile.layers[1].kept_bytes = {4, 3, 2, 1};
  profile.layers[1].work_bytes = 5;
  WriteProfile(folder / "p.json", profile);
  const Profile read = ReadProfile(folder / "p.json");
  CHECK(read.device == profile.device);
  CHECK(read.versions == profile.versions);
  CHECK(read.precision == profile.precision);
  CHECK(read.threads == profile.threads);
  CHECK(read.optimizer_s_per_parameter == profile.optimizer_s_per_parameter);
  CHECK(read.point_to_point.latency_s == profile.point_to_point.latency_s);
  CHECK(read.all_reduce.bytes_per_s == profile.all_reduce.bytes_per_s);
  CHECK(read.host_link_bytes_per_s == profile.host_link_bytes_per_s);
  REQUIRE(read.layers.size() == profile.layers.size());
  const LayerMeasurement &a = read.layers[1], &b = profile.layers[1];
  CHECK(a.layer_kind == b.layer_kind);
  CHECK(a.shape == b.shape);
  CHECK(a.load == b.load);
  CHECK(a.forward_s == b.forward_s);
  CHECK(a.kept_bytes == b.kept_bytes);
  CHECK(a.work_bytes == b.work_bytes);
}

TEST_CASE("profiles are averaged time by time, links by the time of a byte", "[balance][cpu]") {
  const Profile one = QuickstartProfile();
  Profile other = one, without_links = one;
  other.layers[2].backward_s = 3 * one.layers[2].backward_s;
  other.optimizer_s_per_parameter = 4e-9;
  other.point_to_point = {3e-5, 3e9};
  other.layers[1].kept_bytes = {9, 9, 9, 9};  // memory is the first one's
  other.host_link_bytes_per_s = 1e10;
  without_links.point_to_point = {};
  without_links.host_link_bytes_per_s = 0;
  const Profile mean = MeanProfile({one, other, without_links});
  CHECK(mean.layers[2].backward_s == Approx(5.0 / 3 * one.layers[2].backward_s));
  CHECK(mean.layers[0].forward_s == Approx(one.layers[0].forward_s));
  CHECK(mean.layers[1].kept_bytes == one.layers[1].kept_bytes);
  CHECK(mean.optimizer_s_per_parameter == Approx(8e-9 / 3));
  CHECK(mean.point_to_point.latency_s == Approx(2e-5));
  CHECK(mean.point_to_point.bytes_per_s == Approx(2 / (1e-9 + 1e-9 / 3)));
  CHECK(mean.host_link_bytes_per_s == Approx(2 / (1 / 2.5e10 + 1e-10)));
  CHECK(mean.device == one.device);
}

TEST_CASE("a file that is no profile is refused with its path", "[balance][cpu]") {
  const TemporaryFolder folder;
  WriteProfile(folder / "good.json", QuickstartProfile());
  const std::string good = ReadWholeFile(folder / "good.json");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", ""},
      {"[1, 2]", "not a profile"},
      {"{}", "not a profile"},
      {changed("equipoise profile 2", "equipoise trace 2"), "not a profile"},
      {changed("equipoise profile 2", "equipoise profile 1"), "another version of this program"},
      {changed("\"threads\": 1", "\"threads\": -1"), "threads"},
      {changed("\"layers\"", "\"layer\""), "no list 'layers'"},
      {changed("\"forward_s\": ", "\"forward_s\": -"), "layers.0: forward_s"},
      {changed("\"patches\"", "\"patch\""), "patches"},
      {changed("\"bytes_per_s\"", "\"speed\""), "bytes_per_s"},
  };
  for (const auto& [text, what] : cases) {
    const std::string path = folder.Write("bad.json", text);
    INFO(what);
    try {
      ReadProfile(path);
      FAIL_CHECK("taken");
    } catch (const DataError& error) {
      CHECK_THAT(error.what(), Catch::StartsWith(path) && Catch::Contains(what));
    }
  }
  CHECK_THROWS_AS(ReadProfile(folder / "absent.json"), DataError);
  CHECK_THROWS_AS(WriteProfile(folder / "no/such/p.json", Profile()), DataError);
}

TEST_CASE("a profile of another device, version, precision or thread count needs force",
          "[balance][cpu]") {
  const Profile profile = QuickstartProfile();
  CHECK(ProfileMismatch(profile, {}) == "");
  CHECK(ProfileMismatch(profile, {"Processor 9000", profile.versions, "fp32", 1}) == "");
  const std::vector<std::pair<ProfileUse, std::string>> cases = {
      {{"A100", "", "", 0}, "measured on 'Some Processor 9000', used on 'A100'"},
      {{"", "equipoise 2", "", 0}, "used with 'equipoise 2'"},
      {{"", "", "bf16", 0}, "measured in fp32, used in bf16"},
      {{"", "", "", 2}, "measured with 1 threads, used with 2"},
  };
  for (const auto& [use, what] : cases) {
    CHECK_THAT(ProfileMismatch(profile, use), Catch::Contains(what));
    CHECK_THROWS_AS(RequireProfile(profile, use, "p.json", false), ConfigError);
    CHECK_THAT(RequireProfile(profile, use, "p.json", true),
               Catch::StartsWith("p.json: ") && Catch::Contains(what));
  }
  CHECK(RequireProfile(profile, {}, "p.json", false) == "");
}

TEST_CASE("a fit finds the coefficients, and none below zero", "[balance][cpu]") {
  const std::vector<LayerLoad> loads = {Load(1, 64),  Load(4, 256),  Load(8, 512),
                                        Load(0, 512), Load(16, 300), Load(2, 0)};
  std::vector<double> measured, falling;
  for (const LayerLoad& load : loads) {
    measured.push_back(2 + 3.0 * static_cast<double>(TilesOf(load)) + 1e-3 * load.token_pairs);
    falling.push_back(100 - static_cast<double>(TilesOf(load)));
  }
  const LoadFit fit = FitLoads(loads, measured);
  CHECK(fit.coefficients[0] == Approx(2));
  CHECK(fit.coefficients[1] * kRows == Approx(3));
  CHECK(fit.coefficients[2] == Approx(0).margin(1e-9));
  CHECK(fit.coefficients[3] == Approx(1e-3));
  CHECK(fit.coefficients[5] == 0);  // as patches, which stand for them
  CHECK(fit.coefficients[6] == 0);
  CHECK(fit.residual < 1e-9);
  const LoadFit flat = FitLoads(loads, falling);
  for (const double coefficient : flat.coefficients) CHECK(coefficient >= 0);
  CHECK(flat.residual > 0.01);
  CHECK(flat.residual < 0.1);
  CHECK(FitLoads({}, {}).At(loads[0]) == 0);
  CHECK(FitLoads(loads, std::vector<double>(loads.size(), 0.0)).At(loads[0]) == 0);
}

TEST_CASE("times of large loads are met where small ones take as long as their launches",
          "[balance][cpu]") {
  std::vector<LayerLoad> loads;
  std::vector<double> measured;
  for (const int64_t tokens : {1024, 2048, 4096, 8192}) {
    loads.push_back(Load(0, tokens));
    loads.back().token_pairs = 0;
    measured.push_back(std::max(1.9e-3, 0.73e-6 * static_cast<double>(tokens)));
  }
  const auto error = [&](Errors errors) {
    return FitLoads(loads, measured, errors).At(loads.back()) / measured.back() - 1;
  };
  CHECK(std::abs(error(Errors::kAbsolute)) < 0.04);
  CHECK(error(Errors::kRelative) < -0.08);
}

TEST_CASE("pictures of any size are fitted by patches and their pairs", "[balance][cpu]") {
  std::vector<LayerLoad> loads;
  std::vector<double> measured;
  for (const int64_t rows : {256, 1024, 4096, 16384}) {
    const auto n = static_cast<double>(rows);
    loads.push_back(SingleSegment({rows, n * n, rows / 4}, /*tokens=*/0));
    measured.push_back(1e-4 + 2e-6 * n + 3e-9 * n * n);
  }
  const LoadFit fit = FitLoads(loads, measured);
  CHECK(fit.residual < 1e-6);
  CHECK(fit.coefficients[1] == Approx(2e-6));
  CHECK(fit.coefficients[5] == Approx(3e-9));
  CHECK(fit.coefficients[6] == 0);  // as many as patches
}

TEST_CASE("a head is fitted to its targets, older profiles to tokens", "[balance][cpu]") {
  const ModelConfig model = PresetConfig("quickstart");
  const std::string kind = kHead, shape = LayerSpecs(model).back().shape;
  Profile profile;
  for (const int64_t tokens : {64, 256, 512}) {
    for (const int64_t targets : {tokens / 4, tokens}) {
      LayerMeasurement m{kind, shape, Load(0, tokens)};
      m.load.targets = targets;
      m.forward_s = 1e-5 + 1e-8 * static_cast<double>(tokens) + 3e-6 * static_cast<double>(targets);
      profile.layers.push_back(m);
    }
  }
  LayerLoad load = Load(2, 400);
  load.targets = 50;
  CHECK(FitLayer(profile, kind, shape).forward_s.At(load) == Approx(1e-5 + 4e-6 + 150e-6));
  // As read from a file that lacks them: times of a token are those of one with a target.
  Json json = ToJson(profile);
  Json all = Json::array();
  for (Json& layer : json["layers"]) {
    if (layer["tokens"] != layer["targets"]) continue;
    layer.erase("targets");
    all.push_back(layer);
  }
  json["layers"] = all;
  const Profile older = ParseProfile(json, "older.json");
  CHECK(older.layers.front().load.targets == 0);
  CHECK(FitLayer(older, kind, shape).forward_s.At(load) == Approx(1e-5 + 3.01e-6 * 400));
}

TEST_CASE("with a profile, times are the measured ones", "[balance][cpu]") {
  const ModelConfig model = PresetConfig("quickstart");
  Profile profile = QuickstartProfile();
  CostModel::Options options;
  options.element_bytes = 4;
  const CostModel costs(model, MakeCluster({}), options, &profile);
  const LayerLoad load = Load(6, 384);
  const double forward_s = 1e-5 + 6e-4 + 2e-6 * 384 + 3e-9 * load.token_pairs;
  for (int layer = 0; layer < costs.num_layers(); ++layer) {
    INFO(costs.specs()[static_cast<size_t>(layer)].name);
    const LayerTimes times = costs.Times(layer, load);
    CHECK(times.forward_s == Approx(forward_s));
    CHECK(times.input_gradient_s == Approx(1.5 * forward_s));
    CHECK(times.weight_gradient_s == Approx(0.5 * forward_s));
  }
  // A head's measured forward has gradients that a frozen one does not compute.
  const int head = costs.num_layers() - 1;
  const auto share = [&](std::vector<std::string> frozen, const Profile* measured) {
    CostModel::Options some = options;
    some.frozen = std::move(frozen);
    return CostModel(model, MakeCluster({}), some, measured).Times(head, load).forward_s /
           CostModel(model, MakeCluster({}), options, measured).Times(head, load).forward_s;
  };
  for (const std::vector<std::string>& frozen :
       {std::vector<std::string>{"llm"}, {"vision", "projector", "llm"}}) {
    CHECK(share(frozen, &profile) < 0.8);
    CHECK(share(frozen, &profile) == Approx(share(frozen, nullptr)));
  }
  CHECK(costs.error_band() < 1e-6);
  CHECK(costs.optimizer_s_per_parameter() == 2e-9);
  // Measured kept bytes take the place of counted ones.
  const CostModel counted(model, MakeCluster({}), options);
  const int block = 1;
  const int64_t before = counted.KeptBytes(block, load, Recompute::kNone);
  for (LayerMeasurement& m : profile.layers) {
    if (m.layer_kind == "vision_block") m.kept_bytes[0] = 1000 * TilesOf(m.load);
  }
  const CostModel kept(model, MakeCluster({}), options, &profile);
  CHECK(kept.KeptBytes(block, load, Recompute::kNone) == 6000);
  CHECK(kept.KeptBytes(block, load, Recompute::kFull) ==
        counted.KeptBytes(block, load, Recompute::kFull));
  CHECK(before != 6000);
  // Two tensor ranks: about half.
  options.tensor = 2;
  const CostModel split(model, MakeCluster({}), options, &profile);
  CHECK(split.Times(block, load).weight_gradient_s < 0.7 * 0.5 * forward_s);
  CHECK(split.Times(block, load).weight_gradient_s > 0.4 * 0.5 * forward_s);
}

TEST_CASE("layers measured as tensor ranks share them need no analytic share", "[balance][cpu]") {
  const ModelConfig model = PresetConfig("quickstart");
  Profile profile = QuickstartProfile();
  const size_t whole = profile.layers.size();
  for (size_t i = 0; i < whole; ++i) {
    if (profile.layers[i].layer_kind != "vision_block") continue;
    LayerMeasurement m = profile.layers[i];
    m.tensor = 2;
    for (double* time : {&m.forward_s, &m.input_gradient_s, &m.weight_gradient_s, &m.backward_s})
      *time *= 0.875;
    profile.layers.push_back(m);
  }
  ClusterConfig section;
  section.gpus_per_node = 2;
  CostModel::Options options;
  options.element_bytes = 4;
  const LayerLoad load = Load(6, 384);
  const int block = 1;
  const double forward_s = 1e-5 + 6e-4 + 2e-6 * 384 + 3e-9 * load.token_pairs;
  for (const Profile& used : {profile, ParseProfile(ToJson(profile), "profile")}) {
    options.tensor = 1;
    const CostModel alone(model, MakeCluster(section), options, &used);
    CHECK(alone.Times(block, load).forward_s == Approx(forward_s));
    options.tensor = 2;
    const CostModel split(model, MakeCluster(section), options, &used);
    CHECK(split.Times(block, load).forward_s == Approx(0.875 * forward_s));  // sums included
    CHECK(split.Times(block, load).input_gradient_s == Approx(0.875 * 1.5 * forward_s));
    // Between nodes the measured sums are not theirs.
    section.gpus_per_node = 1;
    const CostModel across(model, MakeCluster(section), options, &used);
    CHECK(across.Times(block, load).forward_s != Approx(0.875 * forward_s));
    section.gpus_per_node = 2;
  }
}

TEST_CASE("a profile of another model is refused", "[balance][cpu]") {
  const Profile profile = QuickstartProfile();
  CHECK_THROWS_WITH(
      CostModel(PresetConfig("internvl2-1b"), MakeCluster({}), {}, &profile),
      Catch::Contains("no measurement of patch_embedding") && Catch::Contains("equipoise profile"));
}

}  // namespace
}  // namespace equipoise
