#include <algorithm>
#include <array>
#include <utility>

#include "balance/search/plan_fit.h"
#include "balance/search/recompute.h"

// The recomputation of a plan's ranks, OmniBal's BAR (arXiv 2407.20761): for each rank by itself.

namespace equipoise {
namespace {

constexpr int kAttempts = 8;  // to fit a rank's memory
constexpr std::array<Recompute, kRecomputeKinds> kKinds = {
    Recompute::kNone, Recompute::kElementwise, Recompute::kAttention,  Recompute::kMlp,
    Recompute::kFull, Recompute::kOffload,     Recompute::kFullOffload};

bool IsOffload(Recompute kind) {
  return kind == Recompute::kOffload || kind == Recompute::kFullOffload;
}

// By stage, the micro-batches that a rank keeps when what it keeps is most; `stage_bytes` of each.
std::vector<int64_t> KeptAtPeak(const Schedule& schedule, int rank,
                                const std::vector<double>& stage_bytes) {
  std::vector<int64_t> kept(stage_bytes.size(), 0), peak = kept;
  double bytes = 0, most = -1;
  for (const Op& op : schedule.ranks[static_cast<size_t>(rank)]) {
    if (!IsCompute(op.kind) || !schedule.graph.HasBackward(op.stage)) continue;
    const auto stage = static_cast<size_t>(op.stage);
    // The first half of a backward keeps for the second.
    if (op.kind == OpKind::kInputGradient && schedule.graph.stages[stage].needs_weight_gradient) {
      continue;
    }
    kept[stage] += IsForward(op.kind) ? 1 : -1;
    bytes += IsForward(op.kind) ? stage_bytes[stage] : -stage_bytes[stage];
    if (bytes > most) {
      most = bytes;
      peak = kept;
    }
  }
  return peak;
}

// Of a stage's component, among which the micro-batches are dealt.
double CopiesOf(const Plan& plan, int stage) { return plan.CopiesOf(plan.ComponentOfStage(stage)); }

}  // namespace

MemoryForecast PlanFitter::FitRank(Plan& plan, const Schedule& schedule, int rank,
                                   bool offload) const {
  Plan without = plan;
  const MemoryForecast forecast = ChooseRecompute(plan, schedule, rank, offload);
  if (!offload || forecast.host == 0) return forecast;
  // Copies on their way take memory of their own, which the choice of layers does not know.
  const MemoryForecast kept = ChooseRecompute(without, schedule, rank, /*offload=*/false);
  if (kept.total() > request_.cluster.memory_bytes) return forecast;
  if (forecast.total() <= request_.cluster.memory_bytes &&
      RecomputeSeconds(plan, rank) <= RecomputeSeconds(without, rank))
    return forecast;
  plan.recompute = std::move(without.recompute);
  return kept;
}

double PlanFitter::RecomputeSeconds(const Plan& plan, int rank) const {
  double seconds = 0;
  for (const int stage : plan.StagesOf(rank)) {
    const LayerSpan span = plan.LayersOf(stage);
    for (int layer = span.begin; layer < span.end; ++layer) {
      const Recompute kind = plan.recompute[static_cast<size_t>(layer)];
      seconds += worst_.At(layer, 0).recompute_s[static_cast<size_t>(kind)] / CopiesOf(plan, stage);
    }
  }
  return seconds;
}

MemoryForecast PlanFitter::ChooseRecompute(Plan& plan, const Schedule& schedule, int rank,
                                           bool offload) const {
  MemoryForecast forecast = Forecast(plan, schedule, rank);
  const bool adaptive =
      request_.recompute == RecomputeRule::kAdaptive && request_.pins.recompute.empty();
  if (!adaptive || forecast.total() <= request_.cluster.memory_bytes) return forecast;
  std::vector<int> layers;
  std::vector<double> stage_bytes(static_cast<size_t>(plan.num_stages()), 0.0);
  std::vector<int> stage_of;
  for (const int stage : plan.StagesOf(rank)) {
    const auto s = static_cast<size_t>(stage);
    const LayerSpan span = plan.LayersOf(stage);
    for (int layer = span.begin; layer < span.end; ++layer) {
      layers.push_back(layer);
      stage_of.push_back(stage);
      stage_bytes[s] += worst_.At(layer, 0).kept_bytes[static_cast<size_t>(Recompute::kNone)];
    }
  }
  const std::vector<int64_t> kept = KeptAtPeak(schedule, rank, stage_bytes);
  std::vector<std::vector<RecomputeOption>> options;
  for (size_t i = 0; i < layers.size(); ++i) {
    auto& each = options.emplace_back();
    const LayerCostTable::Costs& costs = worst_.At(layers[i], 0);
    const int64_t micro_batches = kept[static_cast<size_t>(stage_of[i])];
    // What a copy on another rank computes again, this one does too.
    const Recompute given = plan.recompute[static_cast<size_t>(layers[i])];
    const bool copied = plan.CopyOf(stage_of[i]) > 0 && given != Recompute::kNone;
    for (const Recompute kind : kKinds) {
      if (copied && kind != given) continue;
      if (IsOffload(kind) && !offload) continue;
      if (kind == Recompute::kElementwise && !request_.style.program->recomputes_elementwise)
        continue;
      const auto k = static_cast<size_t>(kind);
      each.push_back({kind, costs.recompute_s[k] / CopiesOf(plan, stage_of[i]),
                      micro_batches * static_cast<int64_t>(costs.kept_bytes[k])});
    }
  }
  const auto set = [&](const std::vector<Recompute>& kinds) {
    for (size_t i = 0; i < layers.size(); ++i) {
      plan.recompute[static_cast<size_t>(layers[i])] = kinds[i];
    }
  };
  const auto bytes_of = [&](const std::vector<Recompute>& kinds) {
    int64_t bytes = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      const LayerCostTable::Costs& costs = worst_.At(layers[i], 0);
      bytes += kept[static_cast<size_t>(stage_of[i])] *
               static_cast<int64_t>(costs.kept_bytes[static_cast<size_t>(kinds[i])]);
    }
    return bytes;
  };
  // What a layer needs while it is computed again depends on the choice: so the budget is tightened
  // by what is missing until the forecast fits, from what the last choice kept: it may lie well
  // below its budget.
  int64_t budget = forecast.activations;
  const LeastRecomputation least(std::move(options),
                                 budget - (forecast.total() - request_.cluster.memory_bytes));
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const int64_t over = forecast.total() - request_.cluster.memory_bytes;
    if (over <= 0) return forecast;
    budget -= over;
    const auto kinds = least.Within(budget);
    if (!kinds) break;
    set(*kinds);
    forecast = Forecast(plan, schedule, rank);
    budget = std::min(budget, bytes_of(*kinds));
  }
  if (forecast.total() > request_.cluster.memory_bytes) {
    set(std::vector<Recompute>(layers.size(),
                               offload ? Recompute::kFullOffload : Recompute::kFull));
    forecast = Forecast(plan, schedule, rank);
  }
  return forecast;
}

}  // namespace equipoise
