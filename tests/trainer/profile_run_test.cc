#include "trainer/profile/profile_run.h"

#include <ATen/Parallel.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "models/families/families.h"
#include "tests/models/model_support.h"
#include "tests/parallel/run_ranks.h"
#include "trainer/device/memory_stats.h"

namespace equipoise {
namespace {

using testing::TinyInternVl;
using testing::TinyText;

constexpr int kVisionLayer = 1, kProjectorLayer = 3, kEmbeddingLayer = 4, kDecoderLayer = 5,
              kHeadLayer = 7;

LayerMeasurement Measure(int layer, const MeasuredRow& row) {
  CountCpuMemory();
  return LayerMeter(TinyInternVl(false), layer, at::kFloat).Measure(row);
}

int64_t Kept(const LayerMeasurement& m, Recompute recompute) {
  return m.kept_bytes[static_cast<size_t>(recompute)];
}

TEST_CASE("a measured row counts tokens and pairs of its segments", "[profile][cpu]") {
  ImageSpec images;
  images.rows_per_tile = 5;
  images.tokens_per_tile = 2;
  const LayerLoad load = MeasuredRow{3, {4, 2}}.load(images);
  CHECK(load.patches == 15);
  CHECK(load.patch_pairs == 75);
  CHECK(load.image_tokens == 6);
  CHECK(load.tokens == 6);
  CHECK(load.token_pairs == 10 + 3);
  CHECK(load.targets == 6);
  CHECK(MeasuredRow{0, {4, 2}, 5}.load(images).targets == 1);
}

TEST_CASE("a head is measured with targets on a part of the row", "[profile][cpu]") {
  std::map<int64_t, std::set<int64_t>> targets;  // by tokens
  for (const MeasuredRow& row :
       RowsFor(LayerSpecs(TinyInternVl(false))[kHeadLayer], TinyInternVl(false), {256, 6})) {
    targets[row.load({}).tokens].insert(row.load({}).targets);
  }
  CHECK(targets.at(256) == std::set<int64_t>{64, 256});
  CHECK(targets.at(32) == std::set<int64_t>{8, 32});
  const LayerMeasurement all = Measure(kHeadLayer, {0, {256}}),
                         few = Measure(kHeadLayer, {0, {256}, 192});
  // Rows with a target and their gradient are kept for a quarter of the tokens.
  const int64_t rows = 2 * 256 * TinyInternVl(false).text.hidden_size * 4;
  CHECK(std::abs(Kept(all, Recompute::kNone) - Kept(few, Recompute::kNone) - rows * 3 / 4) < 8192);
}

TEST_CASE("a block keeps its input, a half's share, or all", "[profile][cpu]") {
  const int layer = GENERATE(kVisionLayer, kDecoderLayer);
  const MeasuredRow row = layer == kVisionLayer ? MeasuredRow{16, {}} : MeasuredRow{0, {128, 128}};
  const LayerMeasurement m = Measure(layer, row);
  const ModelConfig config = TinyInternVl(false);
  const int64_t input = layer == kVisionLayer
                            ? 16 * (config.vision.patches() + 1) * config.vision.hidden_size * 4
                            : 256 * config.text.hidden_size * 4;
  CHECK(Kept(m, Recompute::kFull) >= input);
  CHECK(Kept(m, Recompute::kFull) < input + 4096);  // the allocator rounds up
  for (const Recompute half : {Recompute::kAttention, Recompute::kMlp}) {
    CHECK(Kept(m, half) > Kept(m, Recompute::kFull) + input / 2);
    CHECK(Kept(m, half) < Kept(m, Recompute::kNone));
  }
  CHECK(m.work_bytes > input);  // gradients of output and input, at the least
  CHECK(m.forward_s > 0);
  CHECK(m.backward_s > 0);
  CHECK(m.input_gradient_s > 0);
}

TEST_CASE("layers without halves, or without an input, are measured too", "[profile][cpu]") {
  for (const auto& [layer, row] : {std::pair(0, MeasuredRow{4, {}}),
                                   {kProjectorLayer, {4, {}}},
                                   {kEmbeddingLayer, {1, {32}}},
                                   {kEmbeddingLayer, {0, {32}}},
                                   {kHeadLayer, {0, {32}}}}) {
    const LayerMeasurement m = Measure(layer, row);
    INFO(m.layer_kind);
    CHECK(m.forward_s > 0);
    CHECK(std::abs(Kept(m, Recompute::kAttention) - Kept(m, Recompute::kNone)) < 1024);
    const bool has_input = layer != 0 && !(layer == kEmbeddingLayer && row.tiles == 0);
    CHECK((m.input_gradient_s > 0) == has_input);
  }
}

TEST_CASE("the grid has what concerns a kind", "[profile][cpu]") {
  const ModelConfig config = TinyInternVl(false), text = TinyText("llama", false);
  const ProfileGrid grid{256, 6};
  for (const MeasuredRow& row : RowsFor(LayerSpecs(config)[kVisionLayer], config, grid)) {
    CHECK(row.segments.empty());
    CHECK(row.tiles <= 6);
  }
  CHECK(RowsFor(LayerSpecs(config)[kVisionLayer], config, grid).size() == 3);  // 6, 3, 1
  CHECK(RowsFor(LayerSpecs(config)[kVisionLayer], text, {256, 0}).empty());
  std::set<std::pair<int64_t, size_t>> rows;
  for (const MeasuredRow& row : RowsFor(LayerSpecs(config)[kDecoderLayer], config, grid)) {
    CHECK(row.tiles == 0);
    rows.insert({row.load({}).tokens, row.segments.size()});
  }
  CHECK(rows.count({256, 1}) + rows.count({256, 4}) + rows.count({32, 1}) == 3);
  bool spliced = false;
  for (const MeasuredRow& row : RowsFor(LayerSpecs(config)[kEmbeddingLayer], config, grid)) {
    CHECK(row.tiles * config.tokens_per_tile() <= row.load({}).tokens);
    spliced = spliced || row.tiles > 0;
  }
  CHECK(spliced);
}

TEST_CASE("layers are measured for all degrees of tensor ranks that the heads allow",
          "[profile][cpu]") {
  ModelConfig config = TinyInternVl(false);
  config.vision.num_attention_heads = 4;
  config.text.num_attention_heads = 8;
  CHECK(TensorDegrees(config, 1) == std::vector<int>{1});
  CHECK(TensorDegrees(config, 6) == std::vector<int>{1, 2, 3});
  CHECK(TensorDegrees(config, 8) == std::vector<int>{1, 2, 4});
  std::vector<Profile> profiles(2);
  RunRanks(2, [&](Communicator& world) {
    at::set_num_threads(1);
    profiles[static_cast<size_t>(world.rank())] = MeasureProfile(
        TinyInternVl(false), {32, 2}, {ThisDevice(Precision::kFp32), Precision::kFp32, 1}, world);
  });
  CHECK(ToJson(profiles[0]) == ToJson(profiles[1]));
  std::map<std::string, std::set<int>> degrees;
  for (const LayerMeasurement& m : profiles[0].layers) degrees[m.layer_kind].insert(m.tensor);
  CHECK(degrees.size() == 6);
  for (const auto& [kind, found] : degrees) {
    INFO(kind);
    CHECK(found == (kind == "patch_embedding" ? std::set<int>{1} : std::set<int>{1, 2}));
  }
}

TEST_CASE("a profile has every kind of layer, the optimizer, and the link of two ranks",
          "[profile][cpu]") {
  CountCpuMemory();
  std::vector<Profile> profiles(3);
  int told = 0;
  RunRanks(3, [&](Communicator& world) {
    at::set_num_threads(1);
    const auto count = [&](int) { ++told; };
    profiles[static_cast<size_t>(world.rank())] = MeasureProfile(
        TinyInternVl(false), {32, 2}, {ThisDevice(Precision::kFp32), Precision::kFp32, 2}, world,
        world.rank() == 0 ? count : std::function<void(int)>());
  });
  const Profile& profile = profiles[0];
  for (const Profile& other : profiles) CHECK(ToJson(other) == ToJson(profile));
  std::set<std::string> kinds;
  for (const LayerMeasurement& m : profile.layers) kinds.insert(m.layer_kind);
  CHECK(kinds.size() == 6);
  CHECK(told == 2);
  CHECK(profile.precision == "fp32");
  CHECK(profile.optimizer_s_per_parameter > 0);
  CHECK(profile.point_to_point.bytes_per_s > 0);
  CHECK(profile.all_reduce.latency_s > 0);
}

TEST_CASE("a profile has every shape of a kind, such as blocks with windows and without",
          "[profile][cpu]") {
  const ModelConfig config = testing::TinyQwenVl(/*windows=*/true);
  Profile profile;
  RunRanks(1, [&](Communicator& world) {
    at::set_num_threads(1);
    profile =
        MeasureProfile(config, {32, 2}, {ThisDevice(Precision::kFp32), Precision::kFp32, 1}, world);
  });
  std::set<std::pair<std::string, std::string>> needed, measured;
  for (const LayerSpec& spec : LayerSpecs(config)) needed.emplace(spec.kind, spec.shape);
  for (const LayerMeasurement& m : profile.layers) measured.emplace(m.layer_kind, m.shape);
  CHECK(needed.size() == 7);
  CHECK(measured == needed);
}

}  // namespace
}  // namespace equipoise
