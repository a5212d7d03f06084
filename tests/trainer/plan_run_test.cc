#include "trainer/planner/plan_run.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <sstream>

#include "configs/base/error.h"
#include "configs/yaml/yaml_reader.h"
#include "models/families/presets.h"
#include "tests/trainer/plan_case.h"
#include "tests/trainer/scratch_folder.h"
#include "trainer/device/bf16_units.h"
#include "trainer/planner/plan_html.h"
#include "trainer/planner/plan_trace.h"
#include "trainer/planner/plan_workload.h"
#include "trainer/planner/plan_yaml.h"
#include "trainer/planner/sample_costs.h"

namespace equipoise {
namespace {

using testing::Config;
using testing::ErrorOf;

// The text of a plan beside which no other was tried.
std::string ExplanationOfOne(PlanReport report) {
  report.search.rejected.clear();
  std::ostringstream text;
  PrintPlan(report, /*explain=*/true, text);
  return text.str();
}

TEST_CASE("the shipped configuration is planned for 64 devices", "[plan_run][cpu]") {
  PlanReport report = PlanRun(Config({}, /*few_samples=*/false), {});
  report.config = "configs/internvl2_26b_sft.yaml";
  CHECK(report.best().plan.num_ranks() == 64);
  CHECK(report.tiles == 9);
  CHECK(report.tokens == 4096);
  CHECK(report.best().peak_bytes() <= report.request.cluster.memory_bytes);
  CHECK(report.before.pad_ratio > 0.2);  // random micro-batches of about four samples
  CHECK(report.after.pad_ratio == 0);
  CHECK(report.after.dist_ratio_vision < report.before.dist_ratio_vision);
  CHECK(report.after.dist_ratio_text < report.before.dist_ratio_text);

  const Json json = PlanToJson(report);
  for (const char* key :
       {"mesh", "encoder", "schedule", "stages", "step_s", "bubble_share", "tokens_per_s", "mfu",
        "gpu_days", "cost", "epoch", "balance", "rejected"}) {
    INFO(key);
    CHECK(json.contains(key));
  }
  CHECK(json["step_s"]["p10"] < json["step_s"]["p50"]);
  CHECK(json["step_s"]["p50"] < json["step_s"]["p90"]);
  CHECK(json["stages"].size() == static_cast<size_t>(report.best().plan.num_stages()));
  int layers = 0;
  for (const Json& stage : json["stages"]) {
    layers += stage["layers"][1].get<int>() - stage["layers"][0].get<int>() + 1;
    CHECK(stage["recompute"].is_array());
    CHECK(stage["memory_bytes"] > 0);
  }
  CHECK(layers == 97);
  CHECK(json["gpu_days"].get<double>() ==
        Approx(559 * json["step_s"]["p50"].get<double>() * 64 / 86400));
  CHECK(json["cost"].get<double>() == Approx(json["gpu_days"].get<double>() * 48));
  CHECK(json["epoch"]["gpu_days"].get<double>() ==
        Approx(json["epoch"]["steps"].get<double>() * json["step_s"]["p50"].get<double>() * 64 /
               86400));
  CHECK(json["epoch"]["cost"].get<double>() ==
        Approx(json["epoch"]["gpu_days"].get<double>() * 48));
  CHECK(json["constants"] == "this program");

  std::ostringstream text;
  PrintPlan(report, /*explain=*/true, text);
  CHECK(text.str().find("histogram internvl12m") != std::string::npos);
  CHECK(text.str().find("not taken") != std::string::npos);
  CHECK(text.str().find("no other plan was tried") == std::string::npos);
  CHECK(ExplanationOfOne(report).find("not taken\n  none: no other plan was tried") !=
        std::string::npos);
  CHECK(text.str().find("\nepoch    ") != std::string::npos);
  CHECK(text.str().find("predicted for this program") != std::string::npos);

  const std::string page = RenderPlan(report);
  CHECK(page.find("<svg") != std::string::npos);
  CHECK(page.find("http") == std::string::npos);  // offline
  for (const char* part : {"Samples by tokens", "One step: 31.26", "Its first ", ">stage 15<",
                           ">rank 7<", "</i>activations<", " ms</text>", " GiB</text>"}) {
    INFO(part);
    CHECK(page.find(part) != std::string::npos);
  }
  CHECK(page.size() < 1'000'000);  // however many spans the step has
  double end = 0;
  for (const Span& span : PlanTimeline(report)) end = std::max(end, span.end_s);
  CHECK(end == Approx(report.best().step_s));
}

TEST_CASE("ranks and pins change the plan", "[plan_run][cpu]") {
  CHECK(PlanRun(Config({}), {16}).best().plan.num_ranks() == 16);
  const Plan plan = PlanRun(Config({"parallel.pipeline=4", "parallel.schedule=1f1b",
                                    "balance.recompute=full", "balance.group=random"}),
                            {})
                        .best()
                        .plan;
  CHECK(plan.pipeline() == 4);
  CHECK(plan.schedule == "1f1b");
  CHECK(std::count(plan.recompute.begin(), plan.recompute.end(), Recompute::kFull) == 97);
}

TEST_CASE("a pinned mesh of CPUs leaves the schedule to the search", "[plan_run][cpu]") {
  const std::vector<std::string> set = {"cluster.preset=local", "cluster.memory_gb=2000",
                                        "parallel.pipeline=4", "train.global_batch=8"};
  const auto best = [&](const std::string& schedule) {
    std::vector<std::string> pinned = set;
    if (!schedule.empty()) pinned.push_back("parallel.schedule=" + schedule);
    return PlanRun(Config(pinned), {4}).best();
  };
  const ScoredPlan free = best("");
  CHECK(free.plan.data() == 1);
  CHECK(free.plan.schedule == "zb_v");  // few micro-batches: the fill counts
  for (const char* other : {"1f1b", "zb_h1", "interleaved"}) {
    INFO(other);
    CHECK(free.step_s < best(other).step_s);
  }
  CHECK(free.step_s == best("zb_v").step_s);
}

TEST_CASE("a schedule for several pipeline ranks has a mesh of CPUs too", "[plan_run][cpu]") {
  for (const char* schedule : {"interleaved", "zb_v"}) {
    INFO(schedule);
    const RunConfig config =
        Config({"cluster.preset=local", "cluster.memory_gb=2000", "train.global_batch=8",
                "parallel.schedule=" + std::string(schedule)});
    const Plan plan = PlanRun(config, {4}).best().plan;
    CHECK(plan.schedule == schedule);
    CHECK(plan.pipeline() > 1);
  }
}

TEST_CASE("a plan is made in the precision that the run would use", "[plan_run][cpu]") {
  const auto bytes = [](const std::vector<std::string>& more, const PlanTarget& target) {
    std::vector<std::string> set = {"cluster.memory_gb=2000", "train.global_batch=8",
                                    "train.precision=auto"};
    set.insert(set.end(), more.begin(), more.end());
    return PlanRun(Config(set), target).request.element_bytes;
  };
  const std::string local = "cluster.preset=local", cpu = "train.device=cpu";
  const Precision here = ChoosePrecision("auto", ThisMachineHasBf16MatrixUnits("cpu"));
  CHECK(bytes({local, cpu}, {1}) == ElementBytes(here));
  CHECK(bytes({local, cpu, "train.precision=bf16"}, {1}) == 2);
  CHECK(bytes({local, cpu, "train.precision=fp32"}, {1}) == 4);
  CHECK(bytes({local, cpu, "train.precision=fp16"}, {1}) == 2);
  for (const Precision precision :
       {Precision::kFp32, Precision::kBf16, Precision::kFp16})  // the ranks say so
    CHECK(bytes({local, cpu}, {1, precision}) == ElementBytes(precision));
  CHECK(bytes({}, {8}) == 2);
  CHECK(bytes({"train.precision=fp32"}, {8}) == 4);
}

TEST_CASE("the plan says where the encoder is", "[plan_run][cpu]") {
  const std::vector<std::string> set = {"parallel.pipeline=4", "parallel.tensor=2",
                                        "parallel.schedule=interleaved"};
  CHECK(PlanToJson(PlanRun(Config(set), {}))["encoder"] == Json{{"placement", "inline"}});
  std::vector<std::string> apart = set;
  apart.emplace_back("parallel.encoder=disaggregated");
  const PlanReport report = PlanRun(Config(apart), {});
  const Json json = PlanToJson(report);
  CHECK(json["encoder"] == Json{{"placement", "disaggregated"}, {"ranks", 1}});
  CHECK(json["stages"][0]["layers"] == Json{0, 46});
  std::ostringstream text;
  PrintPlan(report, /*explain=*/false, text);
  CHECK(text.str().find("pipeline 4 (1 for the encoder) x tensor 2") != std::string::npos);
}

TEST_CASE("the plan says which tensor ranks a copy of the encoder has", "[plan_run][cpu]") {
  const PlanReport report =
      PlanRun(Config({"parallel.pipeline=4", "parallel.tensor=2", "parallel.schedule=1f1b",
                      "parallel.encoder=three_phase", "parallel.encoder_ranks=4",
                      "parallel.encoder_chunks=1", "parallel.encoder_tensor=1"}),
              {});
  const Json json = PlanToJson(report);
  CHECK(
      json["encoder"] ==
      Json{
          {"placement", "three_phase"}, {"ranks", 4}, {"copies", 2}, {"chunks", 1}, {"tensor", 1}});
  REQUIRE(json["stages"].size() == 2 * 4 + 4);
  std::ostringstream text;
  PrintPlan(report, /*explain=*/false, text);
  CHECK(text.str().find("encoder three_phase on 2 x 4 ranks x tensor 1") != std::string::npos);
  // Both copies of a rank have the same layers, which its row names once.
  const std::string layers = "  0-" + std::to_string(json["stages"][0]["layers"][1].get<int>());
  CHECK(text.str().find(layers + " ") != std::string::npos);
  CHECK(text.str().find(layers + layers.substr(1)) == std::string::npos);
}

TEST_CASE("no pack of an epoch is larger than the one that memory is planned for",
          "[plan_run][cpu]") {
  const ModelConfig model = PresetConfig("internvl2-26b");
  for (const auto& method : NamesOf(GroupMethod())) {
    INFO(method.name);
    const RunConfig config =
        Config({"balance.group=" + std::string(method.name), "train.global_batch=350"});
    const Workload load = PlanWorkload(GatherSampleCosts(config, model), config, model).workload;
    LayerLoad largest;
    for (const std::vector<LayerLoad>& step : load.steps) {
      for (const LayerLoad& pack : step) {
        largest.patches = std::max(largest.patches, pack.patches);
        largest.patch_pairs = std::max(largest.patch_pairs, pack.patch_pairs);
        largest.image_tokens = std::max(largest.image_tokens, pack.image_tokens);
        largest.tokens = std::max(largest.tokens, pack.tokens);
      }
    }
    CHECK(load.steps.size() == 4);
    CHECK(load.worst.patches >= largest.patches);
    CHECK(load.worst.patch_pairs >= largest.patch_pairs);
    CHECK(load.worst.image_tokens >= largest.image_tokens);
    CHECK(load.worst.tokens >= largest.tokens);
    if (!HasFixedSamples(method.value)) CHECK(load.worst.tokens == 4096);
  }
}

TEST_CASE("padding costs time and makes larger micro-batches", "[plan_run][cpu]") {
  std::vector<std::string> set = {"parallel.pipeline=8", "parallel.tensor=2",
                                  "parallel.schedule=1f1b", "balance.recompute=full",
                                  "balance.group=random"};
  const PlanReport tight = PlanRun(Config(set), {});
  set.emplace_back("balance.pad=true");
  const PlanReport padded = PlanRun(Config(set), {});
  CHECK(padded.before.pad_ratio > 0.2);
  CHECK(padded.best().step_s > 1.1 * tight.best().step_s);
  CHECK(padded.request.workload.worst.tokens > tight.request.workload.worst.tokens);
}

TEST_CASE("limits that do not fit are lowered to the largest that do", "[plan_run][cpu]") {
  // The whole encoder on one pipeline rank, which keeps everything of each tile.
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> set = {"parallel.pipeline=2",    "parallel.tensor=8",
                                    "parallel.schedule=1f1b", "parallel.stage_layers=[48, 49]",
                                    "parallel.zero=1",        "balance.recompute=none",
                                    "cluster.memory_gb=45",   "parallel.sequence=false",
                                    "parallel.context=1"};
    set.insert(set.end(), more.begin(), more.end());
    return set;
  };
  const std::vector<std::string> free = {"balance.tiles=0", "balance.tokens=0"};
  const PlanReport report = PlanRun(Config(with(free)), {});
  const int64_t most =
      report.requested->limits.patches / 1025;  // what 4096 tokens bring on average
  CHECK(most > 5);
  CHECK(report.best().peak_bytes() <= report.request.cluster.memory_bytes);
  CHECK(report.requested->limits.tokens == 4096);
  CHECK(report.tiles < most);
  CHECK(report.tiles >= 5);  // the largest sample
  CHECK(PlanToJson(report)["limits"]["lowered_from"]["tiles"] == most);
  std::ostringstream text;
  PrintPlan(report, /*explain=*/false, text);
  CHECK(text.str().find("lowered from " + std::to_string(most) +
                        " tiles and 4096 tokens to fit 45.0 GiB") != std::string::npos);
  // Larger ones do not fit, and given ones stay.
  const auto tiles_given = [&](int64_t tiles) {
    return with({"balance.tiles=" + std::to_string(tiles),
                 "balance.tokens=" + std::to_string(report.tokens)});
  };
  CHECK(ErrorOf(tiles_given(report.tiles + 1), ExitCode::kNoPlan).find("no plan fits") !=
        std::string::npos);
  const PlanReport given = PlanRun(Config(tiles_given(report.tiles)), {});
  CHECK(given.packing_change.empty());
  CHECK_FALSE(PlanToJson(given)["limits"].contains("lowered_from"));
  CHECK(given.best().peak_bytes() == report.best().peak_bytes());
}

// 16 samples of so many tokens.
void WriteLongRows(const std::string& path, int64_t tokens) {
  std::string lines;
  for (int i = 0; i < 16; ++i)
    lines += "{\"vit_num\":2,\"token_num\":" + std::to_string(tokens) + "}\n";
  WriteText(path, lines);
}

TEST_CASE("rows that fit no other plan are shared out over context ranks", "[plan_run][cpu]") {
  const ScratchFolder folder;
  WriteLongRows(folder.Path("long.jsonl"), 300000);
  std::vector<std::string> set = {"data.costs=" + folder.Path("long.jsonl"),
                                  "data.max_tokens=400000", "balance.tokens=400000",
                                  "train.global_batch=8", "cluster.nodes=2"};
  const PlanReport report = PlanRun(Config(set, /*few_samples=*/false), {});
  CHECK(report.best().plan.context() == 2);
  CHECK(report.best().plan.sequence);
  CHECK(PlanToYaml(report.best().plan, {}).find("context: 2") != std::string::npos);
  set.emplace_back("parallel.context=1");
  CHECK_THROWS_WITH(PlanRun(Config(set, /*few_samples=*/false), {}),
                    Catch::Matchers::Contains("no plan fits 16 ranks"));
}

TEST_CASE("ranks without a pack of their own may share out the rows of one", "[plan_run][cpu]") {
  const ScratchFolder folder;
  WriteLongRows(folder.Path("long.jsonl"), 60000);
  const auto plan = [&](int batch, const std::vector<std::string>& more) {
    std::vector<std::string> set = {
        "data.costs=" + folder.Path("long.jsonl"), "data.max_tokens=64000", "balance.tokens=64000",
        "train.global_batch=" + std::to_string(batch), "cluster.nodes=2"};
    set.insert(set.end(), more.begin(), more.end());
    return PlanRun(Config(set, /*few_samples=*/false), {});
  };
  const PlanReport chosen = plan(2, {});
  const PlanReport one = plan(2, {"parallel.context=1"}), given = plan(2, {"parallel.context=4"});
  CHECK(chosen.best().plan.context() > 1);
  CHECK(chosen.best().step_s < 0.97 * one.best().step_s);
  CHECK(chosen.best().step_s <= given.best().step_s);
  // With packs for all ranks none is searched.
  CHECK(plan(16, {}).best().plan.context() == 1);
}

// A deep pipeline with few micro-batches mostly fills and drains.
const std::vector<std::string> kFewMicroBatches = {
    "parallel.pipeline=16",  "parallel.tensor=1", "parallel.data=4", "parallel.schedule=1f1b",
    "train.global_batch=32", "balance.tiles=0",   "balance.tokens=0"};

TEST_CASE("smaller packs are taken where they are faster", "[plan_run][cpu]") {
  const auto with = [](const std::vector<std::string>& more) {
    std::vector<std::string> set = kFewMicroBatches;
    set.insert(set.end(), more.begin(), more.end());
    return PlanRun(Config(set), {});
  };
  const PlanReport own = with({});  // balance.limits: fit
  CHECK(own.tokens == 4096);
  CHECK_FALSE(own.requested);
  const PlanReport found = with({"balance.limits=search"});
  CHECK(found.tokens == 2048);
  CHECK(found.request.workload.global_batch() == 64);
  REQUIRE(found.requested);
  CHECK(found.requested->global_batch == 32);
  CHECK(found.requested->gain > 0.03);
  CHECK(found.forecast.tokens_per_s > 1.03 * own.forecast.tokens_per_s);
  CHECK(64 * found.samples_per_pack == Approx(32 * own.samples_per_pack).epsilon(0.05));
  const Json limits = PlanToJson(found)["limits"];
  CHECK(limits["searched_from"] ==
        Json{{"tiles", own.tiles}, {"tokens", 4096}, {"global_batch", 32}});
  // What was found, given, is the same plan.
  const PlanReport given =
      with({"balance.limits=search", "balance.tokens=2048",
            "balance.tiles=" + std::to_string(found.tiles), "train.global_batch=64"});
  CHECK_FALSE(given.requested);
  CHECK(given.best().plan == found.best().plan);
  CHECK(given.best().step_s == found.best().step_s);
  // One given limit is enough to leave both alone.
  CHECK(with({"balance.limits=search", "balance.tokens=4096"}).tokens == 4096);
}

TEST_CASE("training takes the packs that the plan shows", "[plan_run][cpu]") {
  std::vector<std::string> set = kFewMicroBatches;
  set.emplace_back("balance.limits=search");
  const RunConfig config = Config(set);
  const ModelConfig model = PresetConfig("internvl2-26b");
  const SampleCosts costs = GatherSampleCosts(config, model);
  const TrainingPlan training = PlanTraining(config, model, costs, {64, Precision::kBf16});
  const PlanReport shown = PlanRun(config, {64, Precision::kBf16});
  CHECK(training.plan == shown.best().plan);
  CHECK(training.prediction.tokens == shown.tokens);
  CHECK(training.prediction.tiles == shown.tiles);
  CHECK(training.prediction.global_batch == 64);
  CHECK(PlanToYaml(training.plan, training.prediction).find("global_batch: 64") !=
        std::string::npos);
}

TEST_CASE("a plan's times are those of the kernels that a run takes", "[plan_run][cpu]") {
  const auto step_s = [](const char* kernels) {
    std::vector<std::string> set = kFewMicroBatches;
    // A search may come half a percent above the best partition, as much as the kernels give.
    set.emplace_back("parallel.stage_layers=[8,7,7,7,7,7,8,6,5,5,5,5,5,5,5,5]");
    set.push_back(std::string("train.kernels=") + kernels);
    return PlanRun(Config(set), {64, Precision::kBf16}).best().step_s;
  };
  CHECK(step_s("auto") < step_s("aten"));
}

TEST_CASE("samples above the limits are told", "[plan_run][cpu]") {
  CHECK(PlanRun(Config({}), {}).oversize == 0);
  const PlanReport report = PlanRun(Config({"balance.tiles=4"}), {});
  CHECK(report.oversize == 1000);  // those of 5 tiles
  CHECK(PlanToJson(report)["oversize"] == 1000);
  std::ostringstream text;
  PrintPlan(report, /*explain=*/false, text);
  CHECK(text.str().find("\n         1000 of them are above the limits and left out\n") !=
        std::string::npos);
}

TEST_CASE("a part of the samples stands for the packs of an epoch", "[plan_run][cpu]") {
  const ScratchFolder folder;
  WriteText(folder.Path("short.json"), "{\"rows\": [[0, 16, 400000]]}");
  const std::string name = folder.Path("short.json");
  const RunConfig config = Config({"data.costs=" + name, "train.global_batch=1200"});
  // Of 256 samples in each pack, half is looked at.
  SampleCosts costs = GatherSampleCosts(config, PresetConfig("internvl2-26b"));
  CHECK(PlanRun(config, {}).after.micro_batches == Approx(1563).epsilon(0.01));
  CHECK_THROWS_WITH(PlanRun(Config({"data.costs=" + name, "train.global_batch=1600"}), {}),
                    Catch::Contains("400000 samples make 156"));
  costs.weight = 10;
  CHECK(PlanWorkload(costs, config, PresetConfig("internvl2-26b")).epoch_packs ==
        Approx(15625).epsilon(0.01));
}

TEST_CASE("mistakes are one line", "[plan_run][cpu]") {
  CHECK(ErrorOf({"data.costs=nowhere"}, ExitCode::kBadUsage)
            .find("data.costs: there is no file nowhere") == 0);
  CHECK(ErrorOf({"data.costs=configs/internvl2_26b_sft.yaml"}, ExitCode::kBadData)
            .find("sft.yaml:1") != std::string::npos);
  CHECK(ErrorOf({"train.global_batch=1000000"}, ExitCode::kBadData).find("train.global_batch") !=
        std::string::npos);
  CHECK(ErrorOf({"balance.tiles=1", "balance.tokens=16"}, ExitCode::kBadData)
            .find("above the limits") != std::string::npos);
  CHECK(ErrorOf({"balance.group=isf", "balance.min_tokens=5000"}, ExitCode::kBadUsage) ==
        "balance.min_tokens: 5000 is more than the 4096 tokens that a pack may have; lower it");
  CHECK(ErrorOf({"parallel.schedule=1f1c"}, ExitCode::kBadUsage).find("did you mean '1f1b'?") !=
        std::string::npos);
  CHECK(ErrorOf({"parallel.stage_layers=[40, 40]"}, ExitCode::kBadUsage).find("add up") !=
        std::string::npos);
  CHECK(ErrorOf({"parallel.data=3"}, ExitCode::kBadUsage).find("data 3") != std::string::npos);
  CHECK(ErrorOf({"cluster.nodes=1", "cluster.memory_gb=30"}, ExitCode::kNoPlan)
            .find("what would make it fit") != std::string::npos);
}

}  // namespace
}  // namespace equipoise
