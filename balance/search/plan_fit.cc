#include "balance/search/plan_fit.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "balance/costs/stage_costs.h"
#include "balance/load/partition.h"
#include "balance/search/planned_step.h"
#include "configs/base/error.h"
#include "models/stages/plan_schedule.h"
#include "models/stages/stage_layout.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/passes.h"
#include "parallel/schedule/simulate.h"

// Fits a plan's shape (mesh, schedule, chunks) to model and data, OmniBal's BMP and BAR (arXiv
// 2407.20761). Stages: each component's layers are cut so that the predicted seconds of the stages
// are even, averaged over packs of the first step; the candidates around that cut are ranked by the
// simulator. Recomputation (fit_recompute.cc): rank by rank, since each has a budget of its own,
// the cheapest seconds of recomputation that bring the forecast for the worst pack under the
// device's memory (LeastRecomputation). Bounds (LowerBound(), StepSecondsBound()) never exceed what
// the simulator gives, so that a search may skip a plan by them without missing the best.

namespace equipoise {
namespace {

constexpr int kTypicalPacks = 64;  // over which layers' costs are averaged
constexpr int kRadius = 1;         // of the candidates around the anchor, as in the paper
constexpr size_t kCuts = 3;        // cuts of a shape that are simulated

std::vector<LayerLoad> Sampled(const std::vector<LayerLoad>& packs) {
  const size_t step = std::max<size_t>(1, packs.size() / kTypicalPacks);
  std::vector<LayerLoad> sampled;
  for (size_t pack = 0; pack < packs.size(); pack += step) sampled.push_back(packs[pack]);
  return sampled;
}

// REQUIRES: the schedule is not from a file; a search knows none of those.
const ScheduleKind& KindOfSchedule(const Plan& plan) {
  const ScheduleKind* kind = FindSchedule(plan.schedule);
  EQUIPOISE_CHECK(kind != nullptr, plan.schedule);
  return *kind;
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
                         const std::vector<LayerLoad>& micro_batches,
                         const SimulationCosts& costs) {
  const StageLayout stages(request.model, plan, request.frozen);
  return PlanSchedule(plan).ComputeOps(stages, micro_batches, costs);
}

PlanFitter::PlanFitter(const PlanRequest& request, const Plan& plan)
    : request_(request),
      costs_(request.model, request.cluster, request.CostOptions(plan), request.profile.get()),
      specs_(std::make_shared<const std::vector<LayerSpec>>(costs_.specs())),
      typical_(costs_, Sampled(request.workload.steps.front())),
      worst_(costs_, {request.workload.worst}) {
  for (int layer = 0; layer < costs_.num_layers(); ++layer) {
    double bytes = 0;
    for (int pack = 0; pack < typical_.num_loads(); ++pack) {
      bytes += static_cast<double>(costs_.BoundaryBytes(layer, typical_.load(pack)));
    }
    output_bytes_.push_back(bytes / typical_.num_loads());
  }
}

Schedule PlanFitter::Ops(const Plan& plan, const std::vector<LayerLoad>& micro_batches,
                         const SimulationCosts& costs) const {
  const StageLayout stages(specs_, plan, request_.frozen);
  return PlanSchedule(plan).ComputeOps(stages, micro_batches, costs);
}

PlanFitter::StepPacks::StepPacks(const CostModel& costs, const std::vector<LayerLoad>& packs)
    : table(costs, packs) {
  for (int pack = 0; pack < table.num_loads(); ++pack) {
    double sum = 0;
    for (int layer = 0; layer < costs.num_layers(); ++layer) {
      const LayerTimes& times = table.At(layer, pack).times;
      sum += costs.ShareOfRank(layer) * (times.forward_s + times.backward_s());
    }
    seconds.push_back(sum);
  }
}

PlanFitter::StepPacks& PlanFitter::Packs() const {
  if (!packs_) packs_.emplace(costs_, request_.workload.steps.front());
  return *packs_;
}

const std::vector<int>& PlanFitter::HeaviestPacks(int data) const {
  StepPacks& packs = Packs();
  const auto [entry, is_new] = packs.heaviest.try_emplace(data);
  if (!is_new) return entry->second;
  const std::vector<int> dealt = DealtPacks(request_.workload, 0, data);
  std::vector<double> work(static_cast<size_t>(data), 0.0);
  for (size_t i = 0; i < dealt.size(); ++i) {
    work[i % work.size()] += packs.seconds[static_cast<size_t>(dealt[i])];
  }
  const auto most = std::max_element(work.begin(), work.end());
  entry->second = PacksOfRank(dealt, data, static_cast<int>(most - work.begin()));
  return entry->second;
}

std::vector<LayerLoad> PlanFitter::HeaviestLoads(int data) const {
  std::vector<LayerLoad> loads;
  for (const int pack : HeaviestPacks(data)) loads.push_back(Packs().table.load(pack));
  return loads;
}

double PlanFitter::LowerBound(const Plan& shape) const {
  double work = 0;
  for (const int pack : HeaviestPacks(shape.data()))
    work += Packs().seconds[static_cast<size_t>(pack)];
  // What a rank waits for the stages in front depends on the cut: StepSecondsBound().
  return KindOfSchedule(shape).overlaps ? work / shape.pipeline() : work;
}

int64_t PlanFitter::StateBytesBound(const Plan& shape) const {
  double bytes = 0;
  const auto over = [&](ShardedState state) {
    return shape.IsSharded(state) ? static_cast<double>(shape.shards()) : 1.0;
  };
  for (int layer = 0; layer < costs_.num_layers(); ++layer) {
    const auto parameters = static_cast<double>(costs_.TrainedParameters(layer));
    const auto offloaded = [&](ShardedState state) { return costs_.Offloads(shape, state); };
    const auto shared = static_cast<double>(costs_.SharedBytes(layer));
    bytes += static_cast<double>(costs_.ParameterBytes(layer)) - shared;
    if (!offloaded(ShardedState::kParameters)) bytes += shared / over(ShardedState::kParameters);
    if (parameters == 0) continue;
    const double state = offloaded(ShardedState::kOptimizer)
                             ? 0
                             : OptimizerStateBytes(request_.style, request_.element_bytes);
    const double gradient =
        offloaded(ShardedState::kGradients) ? 0 : 4 / over(ShardedState::kGradients);
    const int lanes = layer < costs_.options().encoder_layers ? shape.encoder_lanes() : 1;
    bytes += (gradient + state / over(ShardedState::kOptimizer) / lanes) * parameters;
  }
  return static_cast<int64_t>(bytes / shape.pipeline());
}

std::vector<double> PlanFitter::LayerSeconds(const std::vector<Recompute>& recompute) const {
  std::vector<double> seconds;
  for (int layer = 0; layer < costs_.num_layers(); ++layer) {
    const Recompute kind =
        recompute.empty() ? Recompute::kNone : recompute[static_cast<size_t>(layer)];
    double sum = 0;
    for (int pack = 0; pack < typical_.num_loads(); ++pack) {
      const LayerCostTable::Costs& costs = typical_.At(layer, pack);
      sum += costs.times.forward_s + costs.times.backward_s() +
             costs.recompute_s[static_cast<size_t>(kind)];
    }
    seconds.push_back(sum / typical_.num_loads());
  }
  return seconds;
}

std::vector<std::vector<int>> PlanFitter::CutBy(const std::vector<double>& layer_s,
                                                const Plan& shape, size_t keep,
                                                bool remember) const {
  std::vector<std::vector<int>> cuts = {{}};
  for (const CutSpan& span : CutSpans(shape, costs_.num_layers())) {
    std::vector<std::vector<int>> longer;
    for (const std::vector<int>& cut : CutsOfSpan(layer_s, span, keep, remember)) {
      for (const std::vector<int>& begins : cuts) longer.push_back(Appended(begins, span, cut));
    }
    cuts = std::move(longer);
  }
  return cuts;
}

std::vector<std::vector<int>> PlanFitter::CutsOfSpan(const std::vector<double>& layer_s,
                                                     const CutSpan& span, size_t keep,
                                                     bool remember) const {
  const CutCosts costs = {ValuesOf(span, layer_s), ValuesOf(span, output_bytes_)};
  if (!remember) return SpanCuts(costs, span.stages, keep);
  const std::lock_guard lock(cuts_lock_);
  auto& known = cuts_[{span.begin, span.end, span.stages, keep}];
  if (known.empty()) known = SpanCuts(costs, span.stages, keep);
  return known;
}

std::vector<std::vector<int>> PlanFitter::Cuts(const Plan& shape, size_t keep) const {
  if (!request_.pins.stage_begins.empty()) return {request_.pins.stage_begins};
  if (request_.partition == PartitionRule::kBalanced) {
    Plan plan = shape;
    if (request_.recompute != RecomputeRule::kAdaptive) {
      plan.recompute.assign(static_cast<size_t>(costs_.num_layers()),
                            UniformRecompute(request_.recompute));
    }
    return CutBy(LayerSeconds(plan.recompute), plan, keep, /*remember=*/true);
  }
  std::vector<double> weights;
  const LayerLoad& load = request_.workload.worst;
  if (request_.partition == PartitionRule::kFlops) {
    weights = LayerCosts(request_.model, request_.frozen, load);
  } else {
    for (const LayerSpec& spec : costs_.specs()) {
      weights.push_back(static_cast<double>(spec.parameter_count()));
    }
  }
  return {EvenStages(weights, CutSpans(shape, costs_.num_layers()))};
}

std::vector<std::vector<int>> PlanFitter::CutsToTry(const Plan& shape) const {
  std::vector<std::vector<int>> cuts = Cuts(shape, kCuts);
  // Filling bubbles takes longer than all else, and evens out what a cut leaves uneven.
  if (FillsBubbles(shape.encoder)) cuts.resize(1);
  return cuts;
}

std::vector<std::vector<int>> PlanFitter::CutsWithRecompute(const Plan& plan, size_t keep) const {
  return CutBy(LayerSeconds(plan.recompute), plan, keep);
}

MemoryForecast PlanFitter::Forecast(const Plan& plan, const Schedule& schedule, int rank) const {
  const std::vector<LayerLoad> loads(static_cast<size_t>(schedule.micro_batches),
                                     request_.workload.worst);
  MemoryForecast forecast = ForecastMemory(costs_, plan, schedule, loads, rank);
  forecast.activations += FeatureBytes(plan);
  return forecast;
}

// Of the next step's features, dealt evenly to the copies of an encoder that runs a step ahead. The
// schedule that a rank is fitted to (WorstSchedule()) does not.
int64_t PlanFitter::FeatureBytes(const Plan& plan) const {
  // One rank has no bubbles: it makes them when all that waits is taken.
  if (!request_.RunsAhead(plan) || plan.pipeline() == 1) return 0;
  const int64_t micro_batches = request_.workload.global_batch() / plan.data();
  const int64_t copies = plan.encoder_copies();
  const int last = plan.components.back().first_layer - 1;
  return (micro_batches + copies - 1) / copies *
         costs_.BoundaryBytes(last, request_.workload.worst);
}

std::vector<Recompute> PlanFitter::GivenRecompute() const {
  if (!request_.pins.recompute.empty()) return request_.pins.recompute;
  return std::vector<Recompute>(static_cast<size_t>(costs_.num_layers()),
                                UniformRecompute(request_.recompute));
}

Schedule PlanFitter::WorstSchedule(Plan& plan) const {
  plan.recompute = GivenRecompute();
  // Three rounds of the pipeline bring every rank to its peak, all micro-batches being equal; a
  // file's schedule is for all of them, and an encoder in the bubbles may run far ahead.
  const int64_t all = request_.workload.global_batch() / plan.data();
  const ScheduleKind* kind = FindSchedule(plan.schedule);
  // So may a frozen one on ranks of its own.
  const bool frozen = plan.encoder == EncoderPlacement::kDisaggregated &&
                      !costs_.HasBackward(plan.components.back().first_layer - 1);
  const bool apart = FillsBubbles(plan.encoder) || frozen;
  const bool whole = kind == nullptr || kind->forwards_first || apart;
  // Micro-batches of two steps may be in flight.
  const int64_t most = kind != nullptr && kind->delays_updates ? 2 * all : all;
  const int64_t rounds = whole ? all : std::min<int64_t>(most, 3 * plan.pipeline());
  const std::vector<LayerLoad> loads(static_cast<size_t>(rounds), request_.workload.worst);
  const SimulationCosts costs =
      StageCosts(worst_, plan, request_.cluster, std::vector<int>(static_cast<size_t>(rounds), 0));
  if (!apart) return Ops(plan, loads, costs);
  // With its transfers, which tell how many features wait. A step ahead, all that the step takes
  // are there when it begins.
  Plan placed = plan;
  if (request_.RunsAhead(plan)) placed.encoder = EncoderPlacement::kThreePhase;
  return PlanSchedule(placed).StepOps({specs_, placed, request_.frozen}, loads, costs);
}

PlanFitter::Fit PlanFitter::FitMemory(Plan& plan) const {
  const Schedule schedule = WorstSchedule(plan);
  Fit fit = FitRanks(plan, schedule, costs_.offloads_activations());
  if (!fit.host_bytes || !costs_.offloads_activations()) return fit;
  // The host has no memory for what takes least time.
  plan.recompute = GivenRecompute();
  return FitRanks(plan, schedule, /*offload=*/false);
}

PlanFitter::Fit PlanFitter::FitRanks(Plan& plan, const Schedule& schedule, bool offload) const {
  Fit fit;
  int64_t most = request_.cluster.memory_bytes;
  for (int rank = 0; rank < plan.pipeline(); ++rank) {
    fit.memory.push_back(FitRank(plan, schedule, rank, offload));
    if (fit.memory.back().total() <= most) continue;
    most = fit.memory.back().total();
    fit.misfit = OutOfMemoryRank{rank, fit.memory.back()};
  }
  // Later ranks may have chosen recomputation for copies that earlier ones hold too.
  if (plan.encoder_copies() > 1 && !fit.misfit) {
    for (int rank = 0; rank < plan.pipeline(); ++rank) {
      fit.memory[static_cast<size_t>(rank)] = Forecast(plan, schedule, rank);
    }
  }
  const int64_t host = HostBytesOfNode(request_.cluster, plan, fit.memory);
  if (host > request_.cluster.host.bytes) fit.host_bytes = host;
  return fit;
}

bool PlanFitter::FitsMemory(Plan plan) const {
  const Schedule schedule = WorstSchedule(plan);
  const auto fits = [&](bool offload) {
    std::vector<MemoryForecast> memory;
    for (int rank = 0; rank < plan.pipeline(); ++rank) {
      memory.push_back(FitRank(plan, schedule, rank, offload));
      if (memory.back().total() > request_.cluster.memory_bytes) return false;
    }
    return HostBytesOfNode(request_.cluster, plan, memory) <= request_.cluster.host.bytes;
  };
  if (fits(costs_.offloads_activations())) return true;
  if (!costs_.offloads_activations()) return false;
  plan.recompute = GivenRecompute();
  return fits(/*offload=*/false);
}

double PlanFitter::StepSecondsBound(const Plan& plan) const {
  const std::vector<int>& packs = HeaviestPacks(plan.data());
  const LayerCostTable& table = Packs().table;
  // Beside the last backwards of the stages in front its own weight gradients may run.
  const bool zero_bubble = KindOfSchedule(plan).splits_backwards;
  // Passes of the step before or of the next one may run then.
  const bool waits = !KindOfSchedule(plan).delays_updates;
  std::vector<double> work(static_cast<size_t>(plan.pipeline()), 0.0);
  double before = 0, bound = 0;  // of the least seconds that each stage in front takes
  std::vector<double> in_front(work.size(), 0.0);
  // An encoder in the bubbles may lie on any rank, and in front of any pass.
  const bool fills = FillsBubbles(plan.encoder);
  double anywhere = 0;
  int place = 0;
  for (int stage = 0; stage < plan.num_stages(); ++stage) {
    const auto rank = static_cast<size_t>(plan.RankOfStage(stage));
    const bool spread = fills && plan.ComponentOfStage(stage).encoder;
    if (spread && plan.CopyOf(stage) > 0) continue;
    const LayerSpan span = plan.LayersOf(stage);
    // A rank waits for the first micro-batch's forward, and the last one's backward after its own.
    double least_forward = std::numeric_limits<double>::infinity();
    double least_backward = zero_bubble ? 0 : least_forward;
    for (const int pack : packs) {
      double seconds = 0, forward = 0;
      for (int layer = span.begin; layer < span.end; ++layer) {
        const LayerCostTable::Costs& costs = table.At(layer, pack);
        const double forward_s = costs.times.forward_s;
        seconds += forward_s + costs.times.backward_s() +
                   costs.recompute_s[static_cast<size_t>(plan.recompute[layer])];
        forward += forward_s;
      }
      // Lanes encode beside each other.
      (spread ? anywhere : work[rank]) += spread ? seconds / plan.encoder_lanes() : seconds;
      least_forward = std::min(least_forward, forward);
      least_backward = std::min(least_backward, seconds - forward);
    }
    if (spread) continue;
    if (place < plan.pipeline()) {
      in_front[rank] = waits ? before : 0;
      before += least_forward + least_backward;
    }
    ++place;
  }
  double all = anywhere;
  for (size_t rank = 0; rank < work.size(); ++rank) {
    bound = std::max(bound, in_front[rank] + work[rank]);
    all += work[rank];
  }
  return fills ? std::max(bound, all / plan.pipeline()) : bound;
}

double PlanFitter::StepSeconds(const Plan& plan) const {
  const StageLayout stages(specs_, plan, request_.frozen);
  const PlannedStep step(stages, Packs().table, request_.cluster, HeaviestPacks(plan.data()),
                         request_.RunsAhead(plan));
  return step.seconds();
}

}  // namespace equipoise
