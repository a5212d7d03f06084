#include "tests/bench/published_runs.h"

#include <algorithm>

#include "balance/costs/cost_model.h"
#include "balance/costs/layer_cost_table.h"
#include "balance/costs/memory_model.h"
#include "balance/costs/stage_costs.h"
#include "balance/search/plan_fit.h"
#include "balance/search/plan_forecast.h"
#include "configs/base/error.h"
#include "parallel/schedule/builders.h"

namespace equipoise::testing {
namespace {

// A language model alone. GPT's MLP of width 4 h stands as gate, up and down of 8 h / 3: the same
// FLOPs, bytes and parameters.
ModelConfig ModelOf(const Json& shape, const std::string& source) {
  ModelConfig model;
  TextConfig& text = model.text;
  model.model_type = text.model_type = "llama";
  text.hidden_size = GetInt(shape, "hidden", source);
  text.intermediate_size = GetInt(shape, "intermediate", source);
  text.num_hidden_layers = GetInt(shape, "layers", source);
  text.num_attention_heads = GetInt(shape, "heads", source);
  text.num_key_value_heads = GetInt(shape, "kv_heads", source);
  text.head_dim = text.hidden_size / text.num_attention_heads;
  text.vocab_size = GetInt(shape, "vocab", source);
  text.tie_word_embeddings = GetBool(shape, "tied", source);
  return model;
}

// Layers by stage: as published, or blocks in equal parts with the embedding before the first and
// the head after the last, as Megatron has them.
std::vector<int> StageBegins(const Json& row, int stages, int blocks) {
  std::vector<int> layers;
  if (row.contains("stage_layers")) {
    layers = row.at("stage_layers").get<std::vector<int>>();
  } else {
    for (int s = 0; s < stages; ++s) {
      layers.push_back((s + 1) * blocks / stages - s * blocks / stages);
    }
    ++layers.front();
    ++layers.back();
  }
  std::vector<int> begins = {0};
  for (const int each : layers) begins.push_back(begins.back() + each);
  return begins;
}

bool Contains(const std::string& text, const char* word) {
  return text.find(word) != std::string::npos;
}

// By the published name of the device, where the row has no preset.
std::string PresetOf(const Json& row, const std::string& source) {
  if (row.contains("preset")) return GetString(row, "preset", source);
  const std::string gpu = GetString(row, "gpu", source);
  if (Contains(gpu, "H200")) return "h200";
  if (Contains(gpu, "H100") || Contains(gpu, "h100")) return "h100-80g";
  return Contains(gpu, "40") ? "a100-40g" : "a100-80g";
}

// What the text of a row says, "" where it has none.
std::string TextOf(const Json& row, const char* key) {
  return row.contains(key) && row.at(key).is_string() ? row.at(key).get<std::string>() : "";
}

// Published as a stage of ZeRO or by the name of FSDP, which shards parameters.
ShardedState ShardedOf(const Json& row, const std::string& source) {
  if (row.contains("zero_stage")) {
    return ShardedStateOf(static_cast<int>(GetInt(row, "zero_stage", source)));
  }
  const Json& zero = row.at("zero");
  if (zero.is_number()) return ShardedStateOf(zero.get<int>());
  return zero.is_null() ? ShardedState::kNone : ShardedState::kParameters;
}

Plan PlanOf(const Json& row, const ModelConfig& model, const std::string& source) {
  const auto number = [&](const char* key) { return static_cast<int>(GetInt(row, key, source)); };
  const Degrees degrees = {number("n") / number("tp") / number("pp"), number("pp"), number("tp")};
  const std::string schedule = GetString(row, "schedule", source, "1f1b");
  const ScheduleKind* kind = FindSchedule(schedule);
  if (kind == nullptr) throw DataError(source + ": no schedule '" + schedule + "'");
  const int chunks = std::max(number("vpp"), kind->fewest_chunks);
  Plan plan = InlinePlan(degrees, chunks, kind->placement);
  plan.schedule = schedule;
  plan.sharded = ShardedOf(row, source);
  const bool hybrid = TextOf(row, "zero") == "HSDP";
  const auto shards = static_cast<int>(GetInt(row, "shard_ranks", source, hybrid ? 8 : 0));
  if (shards < plan.same_weights()) plan.zero_ranks = shards;
  const auto blocks = static_cast<int>(model.text.num_hidden_layers);
  plan.stage_begins = StageBegins(row, plan.num_stages(), blocks);
  std::string recompute = GetString(row, "planned_recompute", source);
  if (Contains(TextOf(row, "recompute"), "selective op")) recompute = "none";  // RunStyle has it
  Recompute kind_of_all = Recompute::kNone;
  for (const auto& [value, name] : NamesOf(Recompute())) {
    if (name == recompute) kind_of_all = value;
  }
  plan.recompute.assign(static_cast<size_t>(blocks) + 2, kind_of_all);
  return plan;
}

// What of the run the plan does not say. Fields that a row lacks have the defaults of the trainers
// of 2023 and later: sums of gradients run beside backward, updated weights are gathered beside the
// next forward, transfers beside passes, as in all implementations of zero-bubble schedules.
RunStyle StyleOf(const Json& row, const std::string& source) {
  RunStyle style;
  style.program = &PublishedSystems();
  const std::string attention = GetString(row, "attention", source, "flash");
  const std::string recompute = TextOf(row, "recompute");
  const bool core = Contains(recompute, "core"), operators = Contains(recompute, "selective op");
  const std::string selective = GetString(row, "selective", source,
                                          core        ? "core"
                                          : operators ? "operators"
                                                      : "none");
  if (attention == "none") style.attention = AttentionKernel::kScores;
  if (attention == "flash3") style.attention = AttentionKernel::kFlash3;
  if (attention == "flash1") style.attention = AttentionKernel::kFlash1;
  if (selective == "core") style.selective = Selective::kCore;
  if (selective == "operators") style.selective = Selective::kOperators;
  style.sequence_parallel = GetBool(row, "sp", source, false);
  style.context = static_cast<int>(GetInt(row, "cp", source, 1));
  style.overlaps_sums =
      GetBool(row, "tensor_overlap", source, Contains(TextOf(row, "note"), "TP overlap"));
  style.overlaps_reduction = GetBool(row, "reduce_overlap", source, true);
  style.overlaps_gather = style.overlaps_reduction;
  const ScheduleKind* kind = FindSchedule(GetString(row, "schedule", source, "1f1b"));
  const bool newer = style.overlaps_reduction || (kind != nullptr && kind->splits_backwards);
  style.overlaps_transfers = GetBool(row, "transfer_overlap", source, newer);
  return style;
}

Cluster ClusterOf(const PublishedRun& run) {
  ClusterConfig section;
  section.preset = run.preset;
  if (run.inter_gb_s > 0) section.inter_gb_s = run.inter_gb_s;
  Cluster cluster = MakeCluster(section);
  cluster.reserve_share = 0.02;  // of a run that fitted: CUDA's and NCCL's contexts alone
  cluster.nodes = (run.plan.num_ranks() + cluster.devices_per_node - 1) / cluster.devices_per_node;
  return cluster;
}

}  // namespace

std::vector<LayerLoad> PublishedRun::Loads() const {
  std::vector<LayerLoad> loads;
  int64_t left = global_batch * style.context / plan.data();
  for (; left > 0; left -= micro_batch) {
    const int64_t sequences = std::min(left, micro_batch);
    LayerLoad load;
    load.tokens = load.targets = sequences * tokens;
    load.token_pairs = static_cast<double>(sequences) * CausalPairs(tokens);
    loads.push_back(load);
  }
  return loads;
}

PublishedRun ReadPublishedRun(const Json& row, const std::string& source) {
  PublishedRun run;
  run.id = GetString(row, "id", source);
  const std::string where = source + ": " + run.id;
  run.table = GetString(row, "table", where);
  run.preset = PresetOf(row, where);
  run.model = ModelOf(row.at("planned_shape"), where);
  run.plan = PlanOf(row, run.model, where);
  run.micro_batch = GetInt(row, "mbs", where);
  run.global_batch = GetInt(row, "gbs", where);
  run.tokens = GetInt(row, "seq", where);
  run.attention = GetString(row, "attention", where, "flash");
  run.style = StyleOf(row, where);
  run.inter_gb_s = GetNumber(row, "inter_gb_s", where, 0);
  run.measured_s = GetNumber(row, "measured_step_s", where);
  return run;
}

RunForecast ForecastRun(const PublishedRun& run) {
  const Cluster cluster = ClusterOf(run);
  CostModel::Options options;
  options.tensor = run.plan.tensor();
  options.style = run.style;
  const CostModel costs(run.model, cluster, options);
  const std::vector<LayerLoad> loads = run.Loads();
  PlanRequest request;
  request.model = run.model;
  // All are alike but the last.
  const LayerCostTable table(costs, {loads.front(), loads.back()});
  std::vector<int> places(loads.size(), 0);
  places.back() = 1;
  const SimulationCosts seconds = StageCosts(table, run.plan, cluster, places);
  const Schedule schedule = ComputeSchedule(request, run.plan, loads, seconds);
  RunForecast forecast;
  forecast.step_s = SimulateTimes(schedule, seconds).step_s;
  forecast.error_band = costs.error_band();
  const auto count = static_cast<double>(loads.size());
  const double flops =
      ModelFlops(costs, loads.front()) * (count - 1) + ModelFlops(costs, loads.back());
  const double peak =
      cluster.peak_flops * run.plan.pipeline() * run.plan.tensor() * run.style.context;
  forecast.mfu = flops / forecast.step_s / peak;
  forecast.measured_mfu = flops / run.measured_s / peak;
  forecast.memory_bytes = cluster.memory_bytes;
  for (int rank = 0; rank < run.plan.pipeline(); ++rank) {
    const int64_t bytes = ForecastMemory(costs, run.plan, schedule, loads, rank).total();
    forecast.peak_bytes = std::max(forecast.peak_bytes, bytes);
  }
  return forecast;
}

}  // namespace equipoise::testing
