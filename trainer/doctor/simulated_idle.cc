#include "trainer/doctor/simulated_idle.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "balance/costs/cost_model.h"
#include "balance/costs/stage_costs.h"
#include "balance/groups/workload.h"
#include "balance/search/plan_fit.h"
#include "parallel/schedule/schedule_text.h"
#include "parallel/schedule/simulate.h"
#include "trainer/planner/plan_trace.h"

namespace equipoise {
namespace {

// Seconds that an op takes for communication inside of it.
class InsideOps {
 public:
  InsideOps(const PlanRequest& request, const Plan& plan)
      : with_(request, plan),
        without_links_(WithLinksFree(request)),
        without_(without_links_, plan),
        loads_(LoadsOf(with_, plan, request.RunsAhead(plan))),
        costs_(StageCosts(with_.costs(), plan, request.cluster, loads_)),
        free_(StageCosts(without_.costs(), plan, without_links_.cluster, loads_)) {}

  // Never negative, nor more than the op's own seconds.
  double Of(const Op& op) const {
    const double all = SecondsOfOp(costs_, op);
    return std::clamp(all - SecondsOfOp(free_, op), 0.0, all);
  }

 private:
  // Those of the timeline's ops: of the next step too, where the encoder runs ahead (PlannedStep).
  static std::vector<LayerLoad> LoadsOf(const PlanFitter& fitter, const Plan& plan, bool ahead) {
    const std::vector<LayerLoad> now = fitter.HeaviestLoads(plan.data());
    std::vector<LayerLoad> all = now;
    if (ahead) all.insert(all.end(), now.begin(), now.end());
    return all;
  }
  static PlanRequest WithLinksFree(PlanRequest request) {
    request.cluster = WithoutLinks(request.cluster);
    return request;
  }

  PlanFitter with_;
  PlanRequest without_links_;
  PlanFitter without_;
  std::vector<LayerLoad> loads_;
  SimulationCosts costs_, free_;
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
    const Op op = ParseOp(span.name);
    const bool update = op.kind == OpKind::kOptimizer;
    const double seconds = std::min(inside.Of(op), span.end_s - span.start_s);
    (update ? rank.update_s : rank.compute_s) -= seconds;
    rank[update ? IdleCause::kAllGather : IdleCause::kTensor] += seconds;
  }
  const double beyond = BeyondMean(request, plan);
  for (RankIdle& rank : table.ranks) {
    rank[IdleCause::kUnevenData] += beyond * rank.compute_s;
    rank.compute_s *= 1 - beyond;
  }
  return table;
}

}  // namespace equipoise
