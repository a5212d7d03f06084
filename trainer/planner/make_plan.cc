#include "trainer/planner/make_plan.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "balance/load/partition.h"
#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/modules.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/schedule_text.h"

namespace equipoise {
namespace {

// What the file holds. Throws ConfigError where there is none: it is no schedule's name either.
std::string ReadScheduleFile(const std::string& schedule) {
  if (!std::filesystem::is_regular_file(schedule)) {
    throw ConfigError("parallel.schedule: '" + schedule + "' is neither a schedule nor a file; " +
                      SuggestSchedule(schedule));
  }
  std::ifstream file(schedule);
  std::stringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty()) {
    throw ConfigError(schedule +
                      ": cannot be read, or is empty; give another file, or a schedule's name");
  }
  return text.str();
}

// How a file's schedule assigns stages to the ranks of the plan. What else may be wrong with it is
// said when it is run.
Placement PlacementInFile(const Plan& plan) {
  if (plan.chunks == 1) return Placement::kLoop;
  const StageGraph graph = ParseSchedule(plan.schedule_text, plan.schedule).graph;
  Plan folded = plan;
  folded.placement = Placement::kV;
  if (graph.num_stages() != plan.num_stages()) return Placement::kLoop;
  for (int stage = 0; stage < plan.num_stages(); ++stage) {
    if (graph.stages[static_cast<size_t>(stage)].rank != folded.RankOfStage(stage))
      return Placement::kLoop;
  }
  return Placement::kV;
}

Plan Degrees(const ParallelSection& parallel, int encoder_ranks, int ranks) {
  Plan plan;
  plan.encoder_ranks = encoder_ranks;
  plan.pipeline = static_cast<int>(parallel.pipeline.value_or(1 + encoder_ranks));
  plan.tensor = static_cast<int>(parallel.tensor.value_or(1));
  const int model_ranks = plan.pipeline * plan.tensor;
  plan.data = static_cast<int>(parallel.data.value_or(std::max(1, ranks / model_ranks)));
  if (plan.num_ranks() != ranks) {
    throw ConfigError("parallel.data x parallel.pipeline x parallel.tensor: " +
                      std::to_string(plan.data) + " x " + std::to_string(plan.pipeline) + " x " +
                      std::to_string(plan.tensor) + " needs " + std::to_string(plan.num_ranks()) +
                      " ranks, and " + std::to_string(ranks) + " were started; use mpirun -n " +
                      std::to_string(plan.num_ranks()) + " or change the degrees");
  }
  return plan;
}

// How many stages each rank has, and which.
void DealStages(const ParallelSection& parallel, Plan& plan) {
  if (FindSchedule(plan.schedule) == nullptr) {
    plan.schedule_text = ReadScheduleFile(plan.schedule);
    plan.chunks = static_cast<int>(parallel.chunks.value_or(1));
    plan.placement = PlacementInFile(plan);
    return;
  }
  const ScheduleKind& kind = *FindSchedule(plan.schedule);
  plan.chunks = static_cast<int>(parallel.chunks.value_or(kind.fewest_chunks));
  plan.placement = kind.placement;
  if (plan.chunks >= kind.fewest_chunks && plan.chunks <= kind.most_chunks) return;
  const std::string has = "parallel.chunks: " + plan.schedule;
  if (!kind.chunked()) {
    throw ConfigError(has + " has one stage a rank; use parallel.schedule: interleaved");
  }
  throw ConfigError(has + (kind.most_chunks == kind.fewest_chunks
                               ? " has 2 stages a rank; leave parallel.chunks out"
                               : " needs 2 or more stages a rank"));
}

}  // namespace

int EncoderRanks(const RunConfig& config, const ModelConfig& model) {
  const ParallelSection& parallel = config.parallel;
  if (parallel.sequence) {
    throw ConfigError("parallel.sequence: is not there yet; leave it out, or set it to false");
  }
  if (parallel.encoder == "inline") {
    if (!parallel.encoder_ranks) return 0;
    throw ConfigError(
        "parallel.encoder_ranks: the encoder's layers are shared by all pipeline ranks (inline); "
        "leave it out, or set parallel.encoder to disaggregated");
  }
  const std::string key = "parallel.encoder: disaggregated ";
  if (!model.has_vision) throw ConfigError(key + "needs an image encoder; use inline");
  const auto ranks = static_cast<int>(parallel.encoder_ranks.value_or(1));
  const int layers = NumEncoderLayers(model);
  if (ranks > layers) {
    throw ConfigError("parallel.encoder_ranks: " + std::to_string(ranks) + " ranks for the " +
                      std::to_string(layers) + " layers of vision and projector; use fewer");
  }
  if (parallel.pipeline && *parallel.pipeline <= ranks) {
    throw ConfigError(key +
                      "leaves the language model no pipeline rank; set parallel.pipeline to " +
                      std::to_string(ranks + 1) + " or more");
  }
  int64_t given = 0;
  for (size_t s = 0; s < parallel.stage_layers.size() && s < static_cast<size_t>(ranks); ++s) {
    given += parallel.stage_layers[s];
  }
  if (!parallel.stage_layers.empty() && given != layers) {
    throw ConfigError(
        "parallel.stage_layers: " + std::to_string(given) +
        " layers on the ranks of the disaggregated encoder, vision and projector have " +
        std::to_string(layers) + "; make the first " + std::to_string(ranks) + " add up to that");
  }
  return ranks;
}

std::vector<int> StageBegins(const std::vector<int64_t>& stage_layers, int num_layers) {
  const std::string key = "parallel.stage_layers: ";
  std::vector<int> begins = {0};
  for (const int64_t count : stage_layers) {
    if (count < 1) throw ConfigError(key + "a stage without layers; give 1 or more each");
    begins.push_back(begins.back() + static_cast<int>(count));
  }
  if (begins.back() != num_layers) {
    throw ConfigError(key + std::to_string(begins.back()) + " layers in all, the model has " +
                      std::to_string(num_layers) + "; make them add up");
  }
  return begins;
}

Plan MakePlan(const RunConfig& config, const ModelConfig& model, int ranks) {
  const ParallelSection& parallel = config.parallel;
  Plan plan = Degrees(parallel, EncoderRanks(config, model), ranks);
  plan.schedule = parallel.schedule.value_or("1f1b");
  plan.sharded = ShardedStateOf(static_cast<int>(parallel.zero.value_or(1)));
  DealStages(parallel, plan);
  const std::vector<LayerSpec> specs = LayerSpecs(model);
  const int num_layers = static_cast<int>(specs.size());
  if (!parallel.stage_layers.empty()) {
    const auto given = static_cast<int>(parallel.stage_layers.size());
    if (given != plan.num_stages()) {
      throw ConfigError("parallel.stage_layers: " + std::to_string(given) +
                        " stages given, the plan has " + std::to_string(plan.num_stages()) +
                        "; give one number a stage");
    }
    plan.stage_begins = StageBegins(parallel.stage_layers, num_layers);
  } else {
    const int64_t tokens = config.data.max_tokens;
    const ImageSpec images = ImageSpecOf(model);
    const int64_t tiles = images.takes_pictures() ? tokens / images.tokens_per_tile : 0;
    const LayerLoad full = SingleSegment(images.LoadOfTiles(tiles), tokens);
    plan.stage_begins =
        EvenStages(LayerCosts(model, config.model.freeze, full), CutSpans(model, plan));
  }
  plan.recompute = GivenRecompute(config, model);
  if (plan.recompute.empty()) plan.recompute.assign(specs.size(), Recompute::kNone);
  return plan;
}

std::vector<Recompute> GivenRecompute(const RunConfig& config, const ModelConfig& model) {
  const BalanceSection& balance = config.balance;
  const std::vector<LayerSpec> specs = LayerSpecs(model);
  const std::vector<std::string>& words = balance.recompute_layers;
  if (!words.empty() && words.size() != specs.size()) {
    throw ConfigError("balance.recompute_layers: " + std::to_string(words.size()) +
                      " words given, the model has " + std::to_string(specs.size()) +
                      " layers; give one word a layer");
  }
  const std::vector<std::string>& modules = balance.recompute_modules;
  CheckModules(model, modules, "balance.recompute_modules");
  const bool adaptive = balance.recompute == "bar";
  if (!modules.empty() && (adaptive || balance.recompute == "none" || !words.empty())) {
    throw ConfigError(
        "balance.recompute_modules: says where balance.recompute is done, which is " +
        std::string(!words.empty() ? "given layer by layer; take one of the two out"
                    : adaptive     ? "chosen for each layer (bar); set it to full, attention or mlp"
                                   : "none; set it to full, attention or mlp"));
  }
  if (words.empty() && adaptive) return {};
  std::vector<Recompute> recompute;
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool named = modules.empty() || IsAmong(specs[i], modules);
    const std::string& word = words.empty() ? balance.recompute : words[i];
    recompute.push_back(!words.empty() || named ? ParseRecompute(word) : Recompute::kNone);
  }
  return recompute;
}

int64_t Accumulation(const RunConfig& config, const Plan& plan) {
  if (config.train.global_batch % plan.data != 0) {
    throw ConfigError("train.global_batch: " + std::to_string(config.train.global_batch) +
                      " packs cannot be dealt to " + std::to_string(plan.data) +
                      " data ranks; use a multiple of " + std::to_string(plan.data));
  }
  return config.train.global_batch / plan.data;
}

std::string DescribePlan(const Plan& plan) {
  std::string text = DescribeAxes(plan);
  if (plan.pipeline > 1) {
    text += ", " + plan.schedule + ", layers";
    const std::vector<int> layers = plan.stage_layers();
    for (size_t s = 0; s < layers.size(); ++s) {
      text += (s == 0 ? " " : " + ") + std::to_string(layers[s]);
    }
  }
  if (plan.optimizer_shards() > 1) text += ", ZeRO-" + std::to_string(ZeroStage(plan.sharded));
  for (const Recompute kind : {Recompute::kFull, Recompute::kAttention, Recompute::kMlp}) {
    const auto count = std::count(plan.recompute.begin(), plan.recompute.end(), kind);
    if (count > 0)
      text += ", recompute " + ToString(kind) + " of " + std::to_string(count) + " layers";
  }
  return text;
}

}  // namespace equipoise
