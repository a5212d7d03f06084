#include <algorithm>

#include "balance/load/partition.h"
#include "models/families/families.h"
#include "models/spec/layer_spec.h"
#include "parallel/schedule/builders.h"
#include "tests/bench/simulator_bench.h"
#include "tests/models/load_of.h"
#include "tests/models/model_support.h"

namespace equipoise::testing {
namespace {

struct Variant {
  const char* schedule;
  const char* partition;  // even: of FLOPs; parameters; early: all but the last layers first
  const char* recompute;  // none, full, attention, mlp, vision: full for vision layers alone
  const char* mix;
};

constexpr Variant kPipelines[] = {
    {"naive", "even", "none", "mixed"},       {"gpipe", "even", "none", "even"},
    {"gpipe", "even", "none", "mixed"},       {"gpipe", "even", "full", "mixed"},
    {"gpipe", "parameters", "none", "text"},  {"1f1b", "even", "none", "even"},
    {"1f1b", "even", "none", "mixed"},        {"1f1b", "even", "none", "text"},
    {"1f1b", "even", "none", "vision"},       {"1f1b", "parameters", "none", "mixed"},
    {"1f1b", "early", "none", "mixed"},       {"1f1b", "even", "full", "mixed"},
    {"1f1b", "even", "attention", "mixed"},   {"1f1b", "even", "mlp", "mixed"},
    {"1f1b", "even", "vision", "vision"},     {"1f1b", "parameters", "full", "vision"},
    {"interleaved", "even", "none", "even"},  {"interleaved", "even", "none", "mixed"},
    {"interleaved", "even", "full", "mixed"}, {"zb_h1", "even", "none", "mixed"},
    {"zb_h1", "even", "full", "mixed"},       {"zb_v", "even", "none", "mixed"},
};

struct DataVariant {
  int zero;
  const char* recompute;
  const char* mix;
};
constexpr DataVariant kData[] = {{0, "none", "even"},  {0, "none", "mixed"}, {1, "none", "mixed"},
                                 {1, "full", "mixed"}, {1, "mlp", "vision"}, {1, "none", "text"}};

constexpr const char* kTensorMixes[] = {"even", "mixed"};

Recompute KindOf(const std::string& word, const LayerSpec& layer) {
  if (word == "full") return Recompute::kFull;
  if (word == "attention") return Recompute::kAttention;
  if (word == "mlp") return Recompute::kMlp;
  const bool vision = layer.component == Component::kEncoder;
  return word == "vision" && vision ? Recompute::kFull : Recompute::kNone;
}

std::vector<int> Stages(const BenchSettings& settings, const std::string& partition, int stages) {
  const std::vector<LayerSpec> specs = LayerSpecs(settings.model);
  const int layers = static_cast<int>(specs.size());
  if (partition == "early") return {0, layers - layers / 4, layers};
  if (partition == "even") {
    return EvenStages(
        LayerCosts(settings.model, {}, LoadOf(settings.model, settings.tiles, settings.tokens)),
        stages);
  }
  std::vector<double> parameters;
  for (const LayerSpec& spec : specs)
    parameters.push_back(static_cast<double>(spec.parameter_count()));
  return EvenStages(parameters, stages);
}

BenchCase MakeCase(const BenchSettings& settings, Plan plan, const std::string& partition,
                   const std::string& recompute, const std::string& mix) {
  plan.stage_begins = Stages(settings, partition, plan.num_stages());
  for (const LayerSpec& spec : LayerSpecs(settings.model)) {
    plan.recompute.push_back(KindOf(recompute, spec));
  }
  std::string name;
  if (plan.pipeline() > 1) name = "pipeline " + plan.schedule + ", " + partition;
  if (plan.data() > 1) name = "data, ZeRO " + std::to_string(ZeroStage(plan.sharded));
  if (plan.tensor() > 1) name = "tensor";
  return {name + ", recompute " + recompute + ", " + mix, plan, mix};
}

}  // namespace

std::vector<BenchCase> BenchCases(const BenchSettings& settings) {
  std::vector<BenchCase> cases;
  for (const Variant& variant : kPipelines) {
    const ScheduleKind& kind = *FindSchedule(variant.schedule);
    Plan plan = InlinePlan({.pipeline = 2}, kind.fewest_chunks, kind.placement);
    plan.schedule = kind.name;
    cases.push_back(MakeCase(settings, plan, variant.partition, variant.recompute, variant.mix));
  }
  for (const DataVariant& variant : kData) {
    Plan plan = InlinePlan({.data = 2});
    plan.sharded = ShardedStateOf(variant.zero);
    cases.push_back(MakeCase(settings, plan, "even", variant.recompute, variant.mix));
  }
  for (const char* mix : kTensorMixes) {
    cases.push_back(MakeCase(settings, InlinePlan({.tensor = 2}), "even", "none", mix));
  }
  return cases;
}

std::vector<BenchBatch> BenchBatches(const BenchSettings& settings, const std::string& mix) {
  std::vector<BenchBatch> batches;
  for (int i = 0; i < settings.micro_batches; ++i) {
    int64_t tokens = settings.tokens, tiles = settings.tiles;
    std::vector<int64_t> segments = {tokens};
    if (mix == "mixed") {
      tokens -= i % 4 * tokens / 8;
      tiles = std::max<int64_t>(0, tiles - i % 3 * tiles / 2);
      segments = i % 2 == 0 ? std::vector<int64_t>{tokens}
                            : std::vector<int64_t>{tokens - tokens / 4, tokens / 4};
    } else if (mix == "text") {
      tiles = 0;
    } else if (mix == "vision") {
      tiles *= 2;
      tokens = segments[0] = std::max(tokens / 2, tiles * settings.model.tokens_per_tile() + 2);
    }
    BenchBatch made;
    made.batch = RandomBatch(settings.model, segments, tiles, static_cast<uint64_t>(i));
    made.batch.targets = made.batch.input_ids;
    made.batch.target_weights.reset();
    made.load = LoadOf(settings.model, tiles, /*tokens=*/0);
    for (const int64_t length : segments) {
      made.load.tokens += length;
      made.load.token_pairs += CausalPairs(length);
    }
    made.load.targets = made.load.tokens;
    batches.push_back(std::move(made));
  }
  return batches;
}

}  // namespace equipoise::testing
