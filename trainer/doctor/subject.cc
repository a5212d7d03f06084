#include "trainer/doctor/subject.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "configs/yaml/yaml_reader.h"
#include "models/families/families.h"
#include "trainer/planner/make_plan.h"
#include "trainer/settings/diloco.h"
#include "trainer/settings/model_section.h"
#include "trainer/settings/source_lists.h"

namespace equipoise {
namespace {

// RUN/plan.yaml: sections of a configuration, and what was predicted for them.
struct PlanFile {
  struct Predicted {
    double step_s = 0, error_band = 0;
    int64_t peak_bytes = 0;
    template <class Visitor>
    void VisitFields(Visitor& visit) {
      visit("step_s", step_s, "seconds of a step");
      visit("error_band", error_band, "its standard deviation, as a share of it");
      visit("peak_bytes", peak_bytes, "of the fullest rank");
    }
  };
  struct Train {
    int64_t global_batch = 0;
    template <class Visitor>
    void VisitFields(Visitor& visit) {
      visit("global_batch", global_batch, "packs of a step, where the planner has changed them");
    }
  };
  ParallelSection parallel;
  BalanceSection balance;
  Train train;
  Predicted predicted;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("parallel", parallel, "the plan");
    visit("balance", balance, "what of each layer is computed again, and limits of packs");
    visit("train", train, "as in a configuration");
    visit("predicted", predicted, "what the planner expects");
  }
};

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw DataError(path + ": cannot be read; give a run folder, plan.json or trace.json");
  return text.str();
}

// Pins a plan in its configuration. `name` is the plan's file.
PlannedConfig Pinned(RunConfig config, const std::string& name, const std::string& plan_yaml) {
  PlanFile file;
  ReadConfigText(name, plan_yaml, {}, file);
  const ParallelSection& parallel = file.parallel;
  if (!parallel.data || !parallel.pipeline || !parallel.tensor) {
    throw DataError(name +
                    ": parallel: has no data, pipeline and tensor; give the folder of a run "
                    "whose plan.yaml is as the program wrote it");
  }
  const int64_t ranks =
      *parallel.data * *parallel.pipeline * *parallel.tensor * parallel.context.value_or(1);
  // What is no part of a plan stays the configuration's.
  const ParallelSection given = config.parallel;
  config.parallel = parallel;
  config.parallel.automatic = false;
  config.parallel.bucket_bytes = given.bucket_bytes;
  config.balance.recompute_layers = file.balance.recompute_layers;
  config.balance.recompute_modules.clear();  // the layers say what was chosen by them
  if (file.balance.tokens > 0) config.balance.tokens = file.balance.tokens;
  if (file.balance.tiles > 0) config.balance.tiles = file.balance.tiles;
  if (file.train.global_batch > 0) config.train.global_batch = file.train.global_batch;
  const ModelConfig model = ModelConfigOf(config.model);
  Plan plan = MakePlan(config, model, static_cast<int>(ranks));
  if (FillsBubbles(plan.encoder)) {
    config.parallel.encoder_stream = given.encoder_stream;
    config.parallel.encoder_static = given.encoder_static;
  }
  // Plans of older programs do not name it where all ranks share the state.
  if (plan.shards() > 1 && plan.zero_ranks == 0) config.parallel.zero_ranks = plan.shards();
  const auto islands = static_cast<int>(config.train.diloco.islands);
  return {OfIsland(std::move(config)), model, std::move(plan), islands};
}

Subject ReadRun(const std::string& folder) {
  Subject subject{folder, true, {}, {}, ReadMetrics(folder + "/metrics.jsonl")};
  const std::string trace = folder + "/trace.json", plan = folder + "/plan.yaml";
  if (!std::filesystem::exists(plan) || !std::filesystem::exists(folder + "/config.yaml")) {
    throw DataError(folder + ": has no config.yaml and plan.yaml; give the folder of a run");
  }
  if (std::filesystem::exists(trace)) subject.trace = ReadTraceFile(trace);
  subject.planned = Pinned(ReadRunConfig(folder + "/config.yaml", {}), plan, TextOf(plan));
  return subject;
}

Subject ReadPlanJson(const std::string& path, const Json& json) {
  RunConfig config;
  ReadConfigText(path + ": settings", GetString(json, "settings", path), {}, config);
  Subject subject{path, false, {}, {}, {}};
  subject.planned =
      Pinned(std::move(config), path + ": sections", GetString(json, "sections", path));
  return subject;
}

}  // namespace

Subject ReadSubject(const std::string& path) {
  if (std::filesystem::is_directory(path)) return ReadRun(path);
  if (path.ends_with(".yaml") || path.ends_with(".yml")) {
    throw DataError(path +
                    ": is a configuration; give the folder of a run, plan.json or "
                    "trace.json");
  }
  const Json json = ReadJsonFile(path);
  if (json.is_object() && json.contains("sections") && json.contains("settings"))
    return ReadPlanJson(path, json);
  if (json.is_object() && json.contains("traceEvents"))
    return {path, false, ReadTraceFile(path), {}, {}};
  throw DataError(path +
                  ": is neither a plan of `plan --json` nor a trace.json; give one of them, or the "
                  "folder of a run");
}

}  // namespace equipoise
