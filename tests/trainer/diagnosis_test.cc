#include "trainer/doctor/diagnosis.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "configs/yaml/yaml_reader.h"
#include "configs/yaml/yaml_writer.h"
#include "parallel/timeline.h"
#include "parallel/trace_file.h"
#include "tests/trainer/scratch_folder.h"
#include "trainer/doctor/subject.h"
#include "trainer/outputs/metrics.h"
#include "trainer/planner/make_plan.h"
#include "trainer/planner/plan_pins.h"
#include "trainer/planner/plan_run.h"
#include "trainer/planner/plan_trace.h"

namespace equipoise {
namespace {

// A plan of a 2B model on 8 devices, with costs of 3,000 samples.
PlanReport Planned(const ScratchFolder& folder, const std::vector<std::string>& set) {
  std::ostringstream lines;
  for (int i = 0; i < 3000; ++i) {
    const int tiles = i * 7919 % 6;
    lines << R"({"vit_num":)" << tiles << R"(,"token_num":)" << 100 + 256 * tiles + i * 6007 % 600
          << "}\n";
  }
  WriteText(folder.Path("costs.jsonl"), lines.str());
  std::vector<Override> overrides = {ParseOverride("data.costs=" + folder.Path("costs.jsonl")),
                                     ParseOverride("model.preset=internvl2-2b"),
                                     ParseOverride("train.global_batch=64"),
                                     ParseOverride("cluster.nodes=1")};
  for (const std::string& text : set) overrides.push_back(ParseOverride(text));
  RunConfig config;
  ReadConfig("configs/internvl2_26b_sft.yaml", overrides, config);
  PlanReport report = PlanRun(config, {});
  report.settings = WriteConfig(config);
  return report;
}

Diagnosis DiagnosisOf(const ScratchFolder& folder, const std::vector<std::string>& set) {
  WriteText(folder.Path("plan.json"), PlanToJson(Planned(folder, set)).dump());
  return Diagnose(folder.Path("plan.json"));
}

// Of the folder of a run with eight data ranks.
Diagnosis DiagnosisOfRun(const ScratchFolder& folder, const Timeline& measured,
                         const std::vector<StepMetrics>& metrics,
                         std::vector<std::string> set = {}) {
  set.insert(set.end(), {"parallel.data=8", "parallel.pipeline=1", "parallel.tensor=1"});
  const PlanReport report = Planned(folder, set);
  WriteText(folder.Path("config.yaml"), report.settings);
  WriteText(folder.Path("plan.yaml"), PlanToJson(report)["sections"].get<std::string>());
  Json trace = Json::parse(ToChromeTrace(measured, {}));
  trace["mesh"] = MeshJson(report.best().plan.mesh);
  WriteText(folder.Path("trace.json"), trace.dump());
  std::string lines;
  for (const StepMetrics& step : metrics) lines += MetricsLine(step) + "\n";
  WriteText(folder.Path("metrics.jsonl"), lines);
  return Diagnose(folder.path());
}

void CheckAddsUp(const IdleTable& table) {
  for (const RankIdle& rank : table.ranks)
    CHECK(rank.compute_s + rank.update_s + rank.idle() == Approx(table.step_s));
}

const Remedy* Find(const Diagnosis& diagnosis, const std::string& name) {
  const auto found = std::find_if(diagnosis.remedies.begin(), diagnosis.remedies.end(),
                                  [&](const Remedy& remedy) { return remedy.name == name; });
  return found == diagnosis.remedies.end() ? nullptr : &*found;
}

// Pasting a setting makes a configuration that is read and has a plan.
void CheckTaken(const PlannedConfig& pinned, const Remedy& remedy) {
  INFO(remedy.name << ": " << remedy.setting);
  RunConfig config = pinned.config;
  CHECK_NOTHROW(ReadConfigText("remedy", remedy.setting, {}, config));
  CHECK_NOTHROW(PlanPinsOf(config, pinned.model));
  CHECK_NOTHROW(MakePlan(config, pinned.model, pinned.plan.num_ranks()));
}

TEST_CASE("remedies that end delayed updates say that they train otherwise", "[doctor][cpu]") {
  const ScratchFolder folder;
  const Diagnosis delayed =
      DiagnosisOf(folder, {"parallel.pipeline=4", "parallel.data=2", "parallel.tensor=1",
                           "parallel.schedule=pipedream_2bw", "parallel.stage_layers=[20,20,9,3]"});
  CHECK(delayed.plan.find(", pipedream_2bw") != std::string::npos);
  const Remedy *cut = Find(delayed, "stages cut by time"), *mesh = Find(delayed, "another mesh");
  REQUIRE(cut != nullptr);
  CHECK(cut->advice.empty());
  REQUIRE(mesh != nullptr);
  CHECK(mesh->advice == "updates are not delayed then, and what is learnt is another");
}

TEST_CASE("a plan's uneven cut is named first, with stages that end it", "[doctor][cpu]") {
  const ScratchFolder folder;
  // 24 vision layers with the patch embedding and the projector, 24 decoder layers, the ends.
  const Diagnosis uneven =
      DiagnosisOf(folder, {"parallel.pipeline=4", "parallel.data=2", "parallel.tensor=1",
                           "parallel.schedule=1f1b", "parallel.stage_layers=[20,20,9,3]"});
  CheckAddsUp(uneven.table);
  CHECK(uneven.table.ranks.size() == 4);
  REQUIRE(!uneven.causes.empty());
  CHECK(uneven.causes.front() == IdleCause::kUnevenStages);
  const Remedy* cut = Find(uneven, "stages cut by time");
  REQUIRE(cut != nullptr);
  CHECK(cut->gain > 0.2);
  CHECK(!cut->at_most);
  // What is pasted gives the plan that was simulated.
  CHECK(cut->setting.find("stage_layers: [") != std::string::npos);
  CHECK(std::is_sorted(uneven.remedies.begin(), uneven.remedies.end(),
                       [](const Remedy& a, const Remedy& b) { return a.gain > b.gain; }));

  std::ostringstream text;
  PrintDiagnosis(uneven, text);
  for (const char* part : {"imbalance: stages", "stages cut by time", "first    ", "rank 3"}) {
    INFO(part << " in\n" << text.str());
    CHECK(text.str().find(part) != std::string::npos);
  }
  const std::string page = RenderDiagnosis(uneven);
  CHECK(page.find("<svg") != std::string::npos);
  CHECK(page.find("http") == std::string::npos);  // offline
  CHECK(page.find("imbalance: stages") != std::string::npos);
}

TEST_CASE("the remedies of the planner's own plan are few", "[doctor][cpu]") {
  const ScratchFolder folder;
  const Diagnosis best = DiagnosisOf(folder, {});
  CheckAddsUp(best.table);
  CHECK(Find(best, "stages cut by time") == nullptr);
  CHECK(Find(best, "another mesh") == nullptr);
  CHECK(best.notes.empty());
}

TEST_CASE("sums over tensor ranks and gathered weights are told", "[doctor][cpu]") {
  const ScratchFolder folder;
  const Diagnosis tensor =
      DiagnosisOf(folder, {"parallel.tensor=4", "parallel.data=2", "parallel.pipeline=1"});
  CheckAddsUp(tensor.table);
  CHECK(tensor.table.Total(IdleCause::kTensor) > 0);
  CHECK(tensor.table.Total(IdleCause::kAllGather) > 0);
  CHECK(tensor.table.Total(IdleCause::kWarmUp) == 0);
}

TEST_CASE("gathers of ZeRO 3 and exchanges of context ranks are no sums over tensor ranks",
          "[doctor][cpu]") {
  const ScratchFolder folder;
  const auto with = [&](std::vector<std::string> set) {
    set.push_back("parallel.pipeline=1");
    const Diagnosis found = DiagnosisOf(folder, set);
    CheckAddsUp(found.table);
    return found.table;
  };
  const IdleTable weights = with({"parallel.zero=3", "parallel.zero_ranks=8", "parallel.data=16",
                                  "parallel.tensor=1", "cluster.nodes=2"});
  CHECK(weights.Total(IdleCause::kTensor) == 0);
  CHECK(weights.Total(IdleCause::kAllGather) > 0);
  const IdleTable gradients =
      with({"parallel.zero=2", "parallel.data=16", "parallel.tensor=1", "cluster.nodes=2"});
  CHECK(gradients.Total(IdleCause::kTensor) == 0);
  CHECK(gradients.Total(IdleCause::kReduceScatter) > 0);
  const IdleTable rows = with({"parallel.context=2", "parallel.data=4", "parallel.tensor=1"});
  CHECK(rows.Total(IdleCause::kTensor) == 0);
  CHECK(rows.Total(IdleCause::kContext) > 0);
  const IdleTable both = with({"parallel.context=2", "parallel.data=2", "parallel.tensor=2"});
  CHECK(both.Total(IdleCause::kTensor) > 0);
  CHECK(both.Total(IdleCause::kContext) > 0);
  const IdleTable sums = with({"parallel.data=4", "parallel.tensor=2"});
  CHECK(sums.Total(IdleCause::kTensor) > 0);
  CHECK(sums.Total(IdleCause::kContext) == 0);
}

TEST_CASE("sums behind the last backward are no gathers of new weights", "[doctor][cpu]") {
  const ScratchFolder folder;
  const Diagnosis found =
      DiagnosisOf(folder, {"parallel.zero=1", "parallel.zero_ranks=8", "parallel.data=16",
                           "parallel.pipeline=1", "parallel.tensor=1", "cluster.nodes=2"});
  CheckAddsUp(found.table);
  CHECK(found.table.Total(IdleCause::kAllGather) > 0);
  // Two nodes add their shards; weights are gathered within each, beside the next forward.
  CHECK(found.table.Total(IdleCause::kReduceScatter) >
        10 * found.table.Total(IdleCause::kAllGather));
}

// Its step has ops of the next step's micro-batches too.
TEST_CASE("a plan whose encoder runs a step ahead is examined", "[doctor][cpu]") {
  const ScratchFolder folder;
  const Diagnosis ahead =
      DiagnosisOf(folder, {"parallel.pipeline=2", "parallel.data=2", "parallel.tensor=2",
                           "cluster.nodes=1", "model.freeze=[vision,projector]",
                           "parallel.encoder=optimus", "parallel.prefetch=true"});
  CheckAddsUp(ahead.table);
  CHECK(ahead.table.Total(IdleCause::kTensor) > 0);
  const Subject subject = ReadSubject(folder.Path("plan.json"));
  REQUIRE(subject.planned.has_value());
  CHECK(subject.planned->config.parallel.prefetch);
  CHECK(FillsBubbles(subject.planned->plan.encoder));
}

TEST_CASE("a plan that recomputes in some modules is examined", "[doctor][cpu]") {
  const ScratchFolder folder;
  const Diagnosis recomputed =
      DiagnosisOf(folder, {"parallel.pipeline=2", "parallel.data=2", "parallel.tensor=2",
                           "balance.recompute=full", "balance.recompute_modules=[vision]"});
  CheckAddsUp(recomputed.table);
  const Subject subject = ReadSubject(folder.Path("plan.json"));
  REQUIRE(subject.planned.has_value());
  const std::vector<Recompute>& layers = subject.planned->plan.recompute;
  CHECK(std::count(layers.begin(), layers.end(), Recompute::kFull) > 0);
  CHECK(std::count(layers.begin(), layers.end(), Recompute::kNone) > 0);
}

TEST_CASE("a plan with context ranks is examined", "[doctor][cpu]") {
  const ScratchFolder folder;
  const Diagnosis context =
      DiagnosisOf(folder, {"parallel.context=2", "parallel.data=2", "parallel.pipeline=1",
                           "parallel.tensor=2", "cluster.nodes=1"});
  CheckAddsUp(context.table);
  CHECK(context.table.ranks.size() == 1);
}

// Features then come from other lanes of a simulation too.
TEST_CASE("a plan whose encoder has fewer tensor ranks is examined", "[doctor][cpu]") {
  const ScratchFolder folder;
  const Diagnosis lanes =
      DiagnosisOf(folder, {"parallel.pipeline=2", "parallel.data=2", "parallel.tensor=2",
                           "cluster.nodes=1", "parallel.encoder=optimus",
                           "parallel.encoder_ranks=2", "parallel.encoder_tensor=1"});
  CheckAddsUp(lanes.table);
  CHECK(lanes.table.Total(IdleCause::kHost) < 0.01 * lanes.table.step_s);
}

TEST_CASE("a plan without bubbles for the encoder is examined", "[doctor][cpu]") {
  const ScratchFolder folder;
  CheckAddsUp(DiagnosisOf(folder, {"parallel.pipeline=1", "parallel.data=4", "parallel.tensor=2",
                                   "cluster.nodes=1", "parallel.encoder=auto",
                                   "parallel.encoder_stream=true", "parallel.encoder_static=true"})
                  .table);
  const Subject subject = ReadSubject(folder.Path("plan.json"));
  REQUIRE(subject.planned.has_value());
  CHECK(subject.planned->plan.encoder == EncoderPlacement::kInline);
  CHECK(!subject.planned->config.parallel.encoder_stream);
}

TEST_CASE("how many ranks share out state is a choice of ZeRO alone", "[doctor][cpu]") {
  const ScratchFolder folder;
  const Diagnosis found =
      DiagnosisOf(folder, {"cluster.nodes=2", "parallel.data=8", "parallel.pipeline=2",
                           "parallel.tensor=1", "parallel.zero=3", "parallel.zero_ranks=4"});
  const Subject subject = ReadSubject(folder.Path("plan.json"));
  CHECK(subject.planned->config.parallel.zero_ranks == 4);
  bool shares_otherwise = false;
  for (const Remedy& remedy : found.remedies) {
    const bool names = remedy.setting.find("zero_ranks") != std::string::npos;
    const bool may = remedy.name == "ZeRO" || remedy.name == "another mesh";
    INFO(remedy.name << ": " << remedy.setting);
    CHECK((may || !names));
    shares_otherwise = shares_otherwise || names;
  }
  CHECK(shares_otherwise);
}

TEST_CASE("a trace of a plan is examined by itself", "[doctor][cpu]") {
  const ScratchFolder folder;
  const PlanReport report = Planned(folder, {"parallel.pipeline=4", "parallel.data=2",
                                             "parallel.tensor=1", "parallel.schedule=1f1b"});
  WriteText(folder.Path("trace.json"), PlanTrace(report));
  const Diagnosis traced = Diagnose(folder.Path("trace.json"));
  CheckAddsUp(traced.table);
  CHECK(traced.table.step_s == Approx(report.best().step_s).epsilon(1e-4));
  CHECK(traced.table.ranks.size() == 4);
  CHECK(traced.table.ranks[3][IdleCause::kWarmUp] > traced.table.ranks[1][IdleCause::kWarmUp]);
  CHECK(traced.remedies.empty());
  CHECK(traced.notes.size() == 1);
}

TEST_CASE("a configuration takes the settings of its plan's remedies", "[doctor][cpu]") {
  const std::vector<std::vector<std::string>> plans = {
      {"cluster.nodes=2", "parallel.data=4", "parallel.tensor=4", "parallel.pipeline=1",
       "parallel.zero_ranks=2"},
      {"cluster.nodes=2", "parallel.data=16", "parallel.tensor=1", "parallel.pipeline=1",
       "parallel.zero=3", "parallel.zero_ranks=8"},
      // To an encoder that is inline or in the bubbles, and to another mesh.
      {"parallel.pipeline=8", "parallel.encoder=disaggregated"},
      {"parallel.pipeline=4", "parallel.tensor=2", "parallel.encoder=disaggregated"},
      // Out of the bubbles, and to another place in them.
      {"parallel.pipeline=8", "parallel.encoder=dep", "parallel.schedule=gpipe",
       "parallel.encoder_stream=true", "parallel.encoder_static=true"},
      {"parallel.pipeline=4", "parallel.tensor=2", "parallel.encoder=dep",
       "parallel.encoder_ranks=2", "parallel.encoder_tensor=1", "parallel.encoder_chunks=2",
       "parallel.schedule=gpipe"},
      {"parallel.pipeline=2", "parallel.tensor=2", "model.freeze=[vision,projector]",
       "parallel.encoder=optimus", "parallel.prefetch=true"}};
  for (const std::vector<std::string>& set : plans) {
    const ScratchFolder folder;
    const Diagnosis found = DiagnosisOf(folder, set);
    const Subject subject = ReadSubject(folder.Path("plan.json"));
    REQUIRE(subject.planned.has_value());
    INFO(found.plan);
    CHECK(!found.remedies.empty());
    for (const Remedy& remedy : found.remedies) CheckTaken(*subject.planned, remedy);
  }
}

// Steps of one second, in each of which another rank waits for data. It has less to compute: no
// rank waits for it.
Timeline OneLoaderLate(int steps) {
  Timeline spans;
  for (int step = 0; step < steps; ++step) {
    const double at = 10 * step;
    const std::string name = "step " + std::to_string(step + 1);
    for (int rank = 0; rank < 8; ++rank) {
      const double wait_s = rank == step ? 0.2 : 0;
      spans.push_back({rank, kStepLane, name, at, at + 1});
      if (wait_s > 0) spans.push_back({rank, kDataLane, "wait 0", at, at + wait_s});
      spans.push_back({rank, kComputeLane, "0F0", at + wait_s, at + 0.9});
      spans.push_back({rank, kComputeLane, "OPT", at + 0.9, at + 1});
    }
  }
  return spans;
}

StepMetrics MetricsOf(int64_t step, double step_s, double data_wait_s) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.step_s = step_s;
  metrics.data_wait_s = data_wait_s;
  metrics.pause_s = 0;
  return metrics;
}

TEST_CASE("waits for data that the trace has are not added again", "[doctor][cpu]") {
  const ScratchFolder folder;
  const Diagnosis traced = DiagnosisOfRun(
      folder, OneLoaderLate(3), {MetricsOf(1, 1, 0.2), MetricsOf(2, 1, 0.2), MetricsOf(3, 1, 0.2)});
  CheckAddsUp(traced.table);
  CHECK(traced.table.step_s == Approx(1));
  CHECK(traced.table.Total(IdleCause::kDataWait) == Approx(0.2 / 8));
  const Diagnosis later =
      DiagnosisOfRun(folder, OneLoaderLate(3),
                     {MetricsOf(1, 1, 0.2), MetricsOf(2, 1, 0.2), MetricsOf(3, 1.6, 0.8)});
  CheckAddsUp(later.table);
  CHECK(later.table.step_s == Approx(1.3));
}

TEST_CASE("outer steps of islands are told apart from other pauses", "[doctor][cpu]") {
  const ScratchFolder folder;
  std::vector<StepMetrics> steps;
  for (int64_t step = 1; step <= 8; ++step) {
    steps.push_back(MetricsOf(step, 1, 0.2));
    steps.back().pause_s = step % 4 == 1 && step > 1 ? 2.1 : 0.1;
    if (step % 4 == 0) steps.back().outer_s = 2;
  }
  const Diagnosis run = DiagnosisOfRun(folder, OneLoaderLate(3), steps, {"train.diloco.every=4"});
  CheckAddsUp(run.table);
  CHECK(run.table.Total(IdleCause::kOuterStep) == Approx(0.5));
  const Remedy* fewer = Find(run, "fewer outer steps");
  REQUIRE(fewer != nullptr);
  CHECK(fewer->setting == "train: {diloco: {every: 16}}");
  CheckTaken(*ReadSubject(folder.path()).planned, *fewer);
}

TEST_CASE("more loader threads are more than ran", "[doctor][cpu]") {
  const ScratchFolder folder;
  const std::vector<StepMetrics> cpu = {MetricsOf(1, 1, 0.2), MetricsOf(2, 1, 0.2)};
  std::vector<StepMetrics> gpu = cpu;
  for (StepMetrics& step : gpu) step.mem_reserved_bytes = int64_t{1} << 30;
  struct Case {
    const char* name;
    std::vector<StepMetrics> metrics;
    std::vector<std::string> set;
    const char* setting;
    bool advises;  // with words, without a number
  };
  const std::vector<Case> cases = {
      {"CPU", cpu, {}, "data: {threads: 4, prefetch: 16}", false},
      {"CPU, given", cpu, {"data.threads=3"}, "data: {threads: 12, prefetch: 16}", false},
      {"GPU", gpu, {"data.prefetch=2"}, "data: {prefetch: 8}", true},
      {"GPU, by its setting", cpu, {"train.device=cuda"}, "data: {prefetch: 16}", true},
      {"CPU, the most",
       cpu,
       {"data.threads=100", "data.prefetch=300"},
       "data: {threads: 256, prefetch: 1024}",
       false},
      {"GPU, given", gpu, {"data.threads=8"}, "data: {threads: 32, prefetch: 16}", false}};
  for (const Case& each : cases) {
    INFO(each.name);
    const Diagnosis run = DiagnosisOfRun(folder, OneLoaderLate(3), each.metrics, each.set);
    const Remedy* more = Find(run, "more loader threads");
    REQUIRE(more != nullptr);
    CHECK(more->setting == each.setting);
    CHECK((more->advice.find("data.threads") != std::string::npos) == each.advises);
    CheckTaken(*ReadSubject(folder.path()).planned, *more);
  }
  const Diagnosis alone = Diagnose(folder.Path("trace.json"));  // nothing says how many there were
  const Remedy* more = Find(alone, "more loader threads");
  REQUIRE(more != nullptr);
  CHECK(more->setting.empty());
  CHECK(more->advice.find("data.threads") != std::string::npos);
}

TEST_CASE("what is no subject is refused", "[doctor][cpu]") {
  const ScratchFolder folder;
  const auto error = [&](const std::string& text) -> std::string {
    WriteText(folder.Path("file.json"), text);
    try {
      Diagnose(folder.Path("file.json"));
    } catch (const DataError& thrown) {
      return thrown.what();
    }
    return "";
  };
  CHECK(error("{}").find("is neither") != std::string::npos);
  CHECK(error("[1, 2").find("file.json:1:") != std::string::npos);
  CHECK(error(R"({"traceEvents": []})").find("has no spans") != std::string::npos);
  CHECK(error(R"({"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0,
                 "args": {"name": "GPU"}}]})")
            .find("'GPU' is no rank") != std::string::npos);
  CHECK_THROWS_WITH(Diagnose("a/base.yaml"),
                    "a/base.yaml: is a configuration; give the folder of a run, plan.json or "
                    "trace.json");
  CHECK_THROWS_AS(Diagnose(folder.Path("absent")), DataError);
  CHECK_THROWS_AS(Diagnose(folder.Path("")), DataError);  // a folder that is no run
}

}  // namespace
}  // namespace equipoise
