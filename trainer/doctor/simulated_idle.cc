#include "trainer/doctor/simulated_idle.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "balance/costs/cost_model.h"
#include "balance/costs/stage_costs.h"
#include "balance/groups/workload.h"
#include "balance/search/plan_fit.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/schedule_text.h"
#include "parallel/schedule/simulate.h"
#include "trainer/planner/plan_trace.h"

namespace equipoise {
namespace {

// Seconds that ops take for communication inside of them: what they take less where one kind of it
// after the other takes no time.
class InsideOps {
 public:
  InsideOps(const PlanRequest& request, const Plan& plan) : request_(request) {
    const std::vector<LayerLoad> loads = LoadsOf(request, plan);
    const Cluster& links = request.cluster;
    const Cluster no_links = WithoutLinks(links);
    whole_ = CostsOf(plan, links, loads);
    update_ = CostsOf(plan, no_links, loads);
    gathered_s_ = UpdateSeconds(plan, links) - UpdateSeconds(plan, no_links);
    const Plan zero2 = UpTo(ShardedState::kGradients, plan);
    const Plan zero1 = UpTo(ShardedState::kOptimizer, plan);
    without_.push_back({IdleCause::kAllGather, CostsOf(zero2, links, loads)});
    without_.push_back({IdleCause::kReduceScatter, CostsOf(zero1, links, loads)});
    if (plan.tensor() > 1 && plan.context() > 1) {
      // Tensor ranks, which are neighbours, sum in rings; heads are exchanged by other links.
      Cluster no_rings = links;
      no_rings.intra_ring = {};
      without_.push_back({IdleCause::kTensor, CostsOf(zero1, no_rings, loads)});
    }
    const IdleCause rest = plan.context() > 1 ? IdleCause::kContext : IdleCause::kTensor;
    without_.push_back({rest, CostsOf(zero1, no_links, loads)});
  }

  // Moves them from `rank`'s seconds of an op, which are `op_s`, to their causes.
  void Tell(const Op& op, double op_s, RankIdle& rank) const {
    double now_s = SecondsOfOp(whole_, op);
    const auto move = [&](const SimulationCosts& costs, IdleCause cause, double& from_s) {
      const double less_s = std::clamp(now_s - SecondsOfOp(costs, op), 0.0, op_s);
      from_s -= less_s, op_s -= less_s, now_s -= less_s;
      rank[cause] += less_s;
    };
    if (op.kind == OpKind::kOptimizer) {
      const double less_s = std::clamp(now_s - SecondsOfOp(update_, op), 0.0, op_s);
      const double gathered_s = std::min(gathered_s_, less_s);
      rank.update_s -= less_s;
      rank[IdleCause::kAllGather] += gathered_s;
      // Sums that begin when all gradients are there.
      rank[IdleCause::kReduceScatter] += less_s - gathered_s;
      return;
    }
    for (const auto& [cause, costs] : without_) move(costs, cause, rank.compute_s);
  }

 private:
  // Those of the timeline's ops: of the next step too, where the encoder or passes run ahead
  // (PlannedStep).
  static std::vector<LayerLoad> LoadsOf(const PlanRequest& request, const Plan& plan) {
    const std::vector<LayerLoad> now = PlanFitter(request, plan).HeaviestLoads(plan.data());
    std::vector<LayerLoad> all = now;
    if (request.RunsAhead(plan) || DelaysUpdates(plan.schedule))
      all.insert(all.end(), now.begin(), now.end());
    return all;
  }
  static Plan UpTo(ShardedState state, Plan plan) {
    plan.sharded = std::min(plan.sharded, state);
    plan.offloaded = std::min(plan.offloaded, state);
    return plan;
  }
  CostModel ModelOf(const Plan& plan, const Cluster& cluster) const {
    return CostModel(request_.model, cluster, request_.CostOptions(plan), request_.profile.get());
  }
  SimulationCosts CostsOf(const Plan& plan, const Cluster& cluster,
                          const std::vector<LayerLoad>& loads) const {
    return StageCosts(ModelOf(plan, cluster), plan, cluster, loads);
  }
  // Of the slowest rank, sums of gradients apart.
  double UpdateSeconds(const Plan& plan, const Cluster& cluster) const {
    const CostModel costs = ModelOf(plan, cluster);
    double seconds = 0;
    for (int rank = 0; rank < plan.pipeline(); ++rank)
      seconds = std::max(seconds, OptimizerSeconds(costs, plan, cluster, rank));
    return seconds;
  }

  const PlanRequest& request_;
  SimulationCosts whole_, update_;
  double gathered_s_ = 0;  // of an update: those in which new weights are gathered
  std::vector<std::pair<IdleCause, SimulationCosts>> without_;
};

// Seconds in which the data rank with the most work computes beyond the mean one, as a share.
double BeyondMean(const PlanRequest& request, const Plan& plan) {
  const PlanFitter fitter(request, plan);
  const LayerCostTable table(fitter.costs(), request.workload.steps.front());
  const std::vector<int> dealt = DealtPacks(request.workload, 0, plan.data());
  std::vector<double> work(static_cast<size_t>(plan.data()), 0.0);
  for (size_t i = 0; i < dealt.size(); ++i) {
    for (int layer = 0; layer < table.model().num_layers(); ++layer) {
      const LayerTimes& times = table.At(layer, dealt[i]).times;
      work[i % work.size()] +=
          table.model().ShareOfRank(layer) * (times.forward_s + times.backward_s());
    }
  }
  const double most = *std::max_element(work.begin(), work.end());
  const double mean = std::accumulate(work.begin(), work.end(), 0.0) / plan.data();
  return most > 0 ? 1 - mean / most : 0;
}

}  // namespace

IdleTable SimulatedIdle(const PlanRequest& request, const Plan& plan) {
  const Timeline timeline = PlanTimeline(request, plan);
  const Mesh mesh({{Axis::kPipeline, plan.pipeline()}});
  IdleTable table = AttributeIdle(StepsOf(timeline).front(), mesh);
  const InsideOps inside(request, plan);
  for (const Span& span : timeline) {
    if (span.lane != kComputeLane) continue;
    RankIdle& rank = table.ranks[static_cast<size_t>(span.rank)];
    inside.Tell(ParseOp(span.name), span.end_s - span.start_s, rank);
  }
  const double beyond = BeyondMean(request, plan);
  for (RankIdle& rank : table.ranks) {
    rank[IdleCause::kUnevenData] += beyond * rank.compute_s;
    rank.compute_s *= 1 - beyond;
  }
  return table;
}

}  // namespace equipoise
