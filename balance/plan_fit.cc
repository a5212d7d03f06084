#include "balance/plan_fit.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "balance/partition.h"
#include "balance/recompute.h"
#include "balance/stage_costs.h"
#include "models/stage_plan.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/passes.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {
namespace {

constexpr int kTypicalPacks = 64;  // over which layers' costs are averaged
constexpr int kRadius = 1;         // of the candidates around the anchor, as in the paper
constexpr int kAttempts = 8;       // to fit a rank's memory
constexpr std::array<Recompute, 4> kKinds = {Recompute::kNone, Recompute::kAttention,
                                             Recompute::kMlp, Recompute::kFull};

std::vector<int> Sampled(int packs) {
  const int step = std::max(1, packs / kTypicalPacks);
  std::vector<int> sampled;
  for (int pack = 0; pack < packs; pack += step) sampled.push_back(pack);
  return sampled;
}

Recompute KindOf(RecomputeRule rule) {
  switch (rule) {
    case RecomputeRule::kAttention:
      return Recompute::kAttention;
    case RecomputeRule::kMlp:
      return Recompute::kMlp;
    case RecomputeRule::kFull:
      return Recompute::kFull;
    default:
      return Recompute::kNone;
  }
}

// By stage, the micro-batches that a rank keeps when what it keeps is most; `stage_bytes` of each.
std::vector<int64_t> KeptAtPeak(const Schedule& schedule, int rank,
                                const std::vector<double>& stage_bytes) {
  std::vector<int64_t> kept(stage_bytes.size(), 0), peak = kept;
  double bytes = 0, most = -1;
  for (const Op& op : schedule.ranks[static_cast<size_t>(rank)]) {
    if (!IsCompute(op.kind) || !schedule.graph.HasBackward(op.stage)) continue;
    const auto stage = static_cast<size_t>(op.stage);
    kept[stage] += IsForward(op.kind) ? 1 : -1;
    bytes += IsForward(op.kind) ? stage_bytes[stage] : -stage_bytes[stage];
    if (bytes > most) {
      most = bytes;
      peak = kept;
    }
  }
  return peak;
}

std::vector<std::vector<int>> SpanCuts(const CutCosts& costs, int stages, size_t keep) {
  std::vector<std::vector<int>> cuts;
  for (StageCandidate& each : BalancedStages(costs, stages, kRadius, keep)) {
    cuts.push_back(std::move(each.begins));
  }
  // The exact programmes' cuts, whatever rank the two metrics give them.
  for (const std::vector<int>& begins :
       {EvenStages(costs.layer_s, stages), LeastVariance(costs, {stages, 0, 1, -1, {}}).front()}) {
    if (std::find(cuts.begin(), cuts.end(), begins) == cuts.end()) {
      cuts.push_back(begins);
    }
  }
  return cuts;
}

}  // namespace

Schedule ComputeSchedule(const PlanRequest& request, const Plan& plan,
                         const std::vector<LayerLoad>& micro_batches) {
  const StagePlan stages(request.model, plan, request.frozen);
  return AddReductions(DropIdleOps(
      BuildSchedule(plan.schedule, stages.graph(), static_cast<int>(micro_batches.size())),
      stages.Work(micro_batches)));
}

PlanFitter::PlanFitter(const PlanRequest& request, int tensor)
    : request_(request),
      costs_(request.model, request.cluster, {tensor, request.element_bytes, request.frozen},
             request.profile.get()),
      table_(costs_, request.workload.steps.front()),
      typical_(Sampled(table_.num_loads())) {
  for (const LayerSpec& spec : costs_.specs()) {
    double bytes = 0;
    for (const int pack : typical_) {
      bytes += static_cast<double>(spec.BoundaryBytes(table_.load(pack), request.element_bytes));
    }
    output_bytes_.push_back(bytes / static_cast<double>(typical_.size()));
  }
  for (int pack = 0; pack < table_.num_loads(); ++pack) {
    double seconds = 0;
    for (int layer = 0; layer < costs_.num_layers(); ++layer) {
      const LayerTimes& times = table_.At(layer, pack).times;
      seconds += times.forward_s + times.backward_s();
    }
    pack_s_.push_back(seconds);
  }
}

const std::vector<int>& PlanFitter::HeaviestPacks(int data) const {
  const auto [entry, is_new] = heaviest_packs_.try_emplace(data);
  if (!is_new) return entry->second;
  const std::vector<int> dealt = DealtPacks(request_.workload, 0, data);
  std::vector<double> work(static_cast<size_t>(data), 0.0);
  for (size_t i = 0; i < dealt.size(); ++i) {
    work[i % work.size()] += pack_s_[static_cast<size_t>(dealt[i])];
  }
  const auto most = std::max_element(work.begin(), work.end());
  entry->second = PacksOfRank(dealt, data, static_cast<int>(most - work.begin()));
  return entry->second;
}

std::vector<LayerLoad> PlanFitter::HeaviestLoads(int data) const {
  std::vector<LayerLoad> loads;
  for (const int pack : HeaviestPacks(data)) loads.push_back(table_.load(pack));
  return loads;
}

double PlanFitter::LowerBound(const Plan& shape) const {
  double work = 0, lightest = std::numeric_limits<double>::infinity();
  for (const int pack : HeaviestPacks(shape.data)) {
    const double seconds = pack_s_[static_cast<size_t>(pack)];
    work += seconds;
    lightest = std::min(lightest, seconds);
  }
  if (shape.schedule == "naive") return work;
  // Behind an encoder of its own ranks differ whatever the stages: what lies in front is left out.
  if (shape.encoder_ranks > 0) return work / shape.pipeline;
  // Averaged over the ranks, half of the pipeline lies in front; of chunked ranks, their first
  // chunks.
  const double fill = (shape.pipeline - 1) / 2.0 * lightest / shape.num_stages();
  return work / shape.pipeline + fill;
}

int64_t PlanFitter::StateBytesBound(const Plan& shape) const {
  double bytes = 0;
  const double element = static_cast<double>(request_.element_bytes);
  const double shards = shape.zero > 0 ? shape.data : 1;
  for (int layer = 0; layer < costs_.num_layers(); ++layer) {
    const auto parameters = static_cast<double>(costs_.Parameters(layer));
    bytes += element * parameters;
    if (costs_.Trainable(layer)) bytes += (4 + 8 / shards) * parameters;
  }
  return static_cast<int64_t>(bytes / shape.pipeline);
}

std::vector<double> PlanFitter::LayerSeconds(const std::vector<Recompute>& recompute) const {
  std::vector<double> seconds;
  for (int layer = 0; layer < costs_.num_layers(); ++layer) {
    const Recompute kind =
        recompute.empty() ? Recompute::kNone : recompute[static_cast<size_t>(layer)];
    double sum = 0;
    for (const int pack : typical_) {
      const LayerCostTable::Costs& costs = table_.At(layer, pack);
      sum += costs.times.forward_s + costs.times.backward_s() +
             costs.recompute_s[static_cast<size_t>(kind)];
    }
    seconds.push_back(sum / static_cast<double>(typical_.size()));
  }
  return seconds;
}

std::vector<std::vector<int>> PlanFitter::CutBy(const std::vector<double>& layer_s,
                                                const Plan& shape, size_t keep) const {
  std::vector<std::vector<int>> cuts = {{}};
  for (const CutSpan& span : CutSpans(request_.model, shape)) {
    const CutCosts costs = {ValuesOf(span, layer_s), ValuesOf(span, output_bytes_)};
    std::vector<std::vector<int>> longer;
    for (const std::vector<int>& cut : SpanCuts(costs, span.stages, keep)) {
      for (const std::vector<int>& begins : cuts) longer.push_back(Appended(begins, span, cut));
    }
    cuts = std::move(longer);
  }
  return cuts;
}

std::vector<std::vector<int>> PlanFitter::Cuts(const Plan& shape, size_t keep) const {
  if (!request_.pins.stage_begins.empty()) return {request_.pins.stage_begins};
  if (request_.partition == PartitionRule::kBalanced) {
    Plan plan = shape;
    if (request_.recompute != RecomputeRule::kAdaptive) {
      plan.recompute.assign(static_cast<size_t>(costs_.num_layers()), KindOf(request_.recompute));
    }
    return CutBy(LayerSeconds(plan.recompute), plan, keep);
  }
  std::vector<double> weights;
  const LayerLoad& load = request_.workload.worst;
  if (request_.partition == PartitionRule::kFlops) {
    weights = LayerCosts(request_.model, request_.frozen, load);
  } else {
    for (const LayerSpec& spec : costs_.specs()) {
      weights.push_back(static_cast<double>(spec.parameters));
    }
  }
  return {EvenStages(weights, CutSpans(request_.model, shape))};
}

std::vector<std::vector<int>> PlanFitter::CutsWithRecompute(const Plan& plan, size_t keep) const {
  return CutBy(LayerSeconds(plan.recompute), plan, keep);
}

MemoryForecast PlanFitter::Forecast(const Plan& plan, const Schedule& schedule, int rank) const {
  const std::vector<LayerLoad> loads(static_cast<size_t>(schedule.micro_batches),
                                     request_.workload.worst);
  return ForecastMemory(costs_, plan, schedule, loads, rank);
}

MemoryForecast PlanFitter::FitRank(Plan& plan, const Schedule& schedule, int rank) const {
  const LayerLoad& worst = request_.workload.worst;
  std::vector<int> layers;
  std::vector<double> stage_bytes(static_cast<size_t>(plan.num_stages()), 0.0);
  std::vector<int> stage_of;
  for (const int stage : plan.StagesOf(rank)) {
    const auto s = static_cast<size_t>(stage);
    for (int layer = plan.stage_begins[s]; layer < plan.stage_begins[s + 1]; ++layer) {
      layers.push_back(layer);
      stage_of.push_back(stage);
      stage_bytes[s] += static_cast<double>(costs_.KeptBytes(layer, worst, Recompute::kNone));
    }
  }
  const std::vector<int64_t> kept = KeptAtPeak(schedule, rank, stage_bytes);
  std::vector<std::vector<RecomputeOption>> options;
  for (size_t i = 0; i < layers.size(); ++i) {
    auto& each = options.emplace_back();
    for (const Recompute kind : kKinds) {
      each.push_back(
          {kind, costs_.RecomputeSeconds(layers[i], worst, kind),
           kept[static_cast<size_t>(stage_of[i])] * costs_.KeptBytes(layers[i], worst, kind)});
    }
  }
  const auto set = [&](const std::vector<Recompute>& kinds) {
    for (size_t i = 0; i < layers.size(); ++i) {
      plan.recompute[static_cast<size_t>(layers[i])] = kinds[i];
    }
  };
  // What a layer needs while it is computed again depends on the choice: so the budget is tightened
  // by what is missing until the forecast fits.
  MemoryForecast forecast = Forecast(plan, schedule, rank);
  int64_t budget = forecast.activations;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const int64_t over = forecast.total() - request_.cluster.memory_bytes;
    if (over <= 0) return forecast;
    budget -= over;
    const auto kinds = LeastRecompute(options, budget);
    if (!kinds) break;
    set(*kinds);
    forecast = Forecast(plan, schedule, rank);
  }
  if (forecast.total() > request_.cluster.memory_bytes) {
    set(std::vector<Recompute>(layers.size(), Recompute::kFull));
    forecast = Forecast(plan, schedule, rank);
  }
  return forecast;
}

PlanFitter::Fit PlanFitter::FitMemory(Plan& plan) const {
  const bool adaptive =
      request_.recompute == RecomputeRule::kAdaptive && request_.pins.recompute.empty();
  plan.recompute = request_.pins.recompute;
  if (plan.recompute.empty()) {
    plan.recompute.assign(static_cast<size_t>(costs_.num_layers()), KindOf(request_.recompute));
  }
  // Three rounds of the pipeline bring every rank to its peak, all micro-batches being equal.
  const int64_t all = request_.workload.global_batch() / plan.data;
  const int64_t rounds = plan.schedule == "gpipe" ? all : std::min<int64_t>(all, 3 * plan.pipeline);
  const Schedule schedule = ComputeSchedule(
      request_, plan, std::vector<LayerLoad>(static_cast<size_t>(rounds), request_.workload.worst));
  Fit fit;
  int64_t most = request_.cluster.memory_bytes;
  for (int rank = 0; rank < plan.pipeline; ++rank) {
    fit.memory.push_back(adaptive ? FitRank(plan, schedule, rank) : Forecast(plan, schedule, rank));
    if (fit.memory.back().total() <= most) continue;
    most = fit.memory.back().total();
    fit.misfit = Misfit{rank, fit.memory.back()};
  }
  return fit;
}

double PlanFitter::StepSecondsBound(const Plan& plan) const {
  const std::vector<int>& packs = HeaviestPacks(plan.data);
  std::vector<double> work(static_cast<size_t>(plan.pipeline), 0.0);
  double before = 0, bound = 0;  // of the least seconds that each stage in front takes
  std::vector<double> in_front(work.size(), 0.0);
  for (int stage = 0; stage < plan.num_stages(); ++stage) {
    const auto s = static_cast<size_t>(stage);
    const auto rank = static_cast<size_t>(plan.RankOfStage(stage));
    double least = std::numeric_limits<double>::infinity();
    for (const int pack : packs) {
      double seconds = 0;
      for (int layer = plan.stage_begins[s]; layer < plan.stage_begins[s + 1]; ++layer) {
        const LayerCostTable::Costs& costs = table_.At(layer, pack);
        seconds += costs.times.forward_s + costs.times.backward_s() +
                   costs.recompute_s[static_cast<size_t>(plan.recompute[layer])];
      }
      work[rank] += seconds;
      least = std::min(least, seconds);
    }
    if (stage < plan.pipeline) {
      in_front[rank] = before;
      before += least;
    }
  }
  for (size_t rank = 0; rank < work.size(); ++rank) {
    bound = std::max(bound, in_front[rank] + work[rank]);
  }
  return bound;
}

double PlanFitter::StepSeconds(const Plan& plan) const {
  return SimulateTimes(ComputeSchedule(request_, plan, HeaviestLoads(plan.data)),
                       StageCosts(table_, plan, request_.cluster, HeaviestPacks(plan.data)))
      .step_s;
}

}  // namespace equipoise
