#include "trainer/planner/plan_trace.h"

#include "balance/costs/stage_costs.h"
#include "balance/search/plan_fit.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {

Timeline PlanTimeline(const PlanReport& report) {
  const PlanRequest& request = report.request;
  const Plan& plan = report.best().plan;
  const PlanFitter fitter(request, plan.tensor());
  const std::vector<LayerLoad> loads = fitter.HeaviestLoads(plan.data());
  const SimulationCosts costs = StageCosts(fitter.costs(), plan, request.cluster, loads);
  return Simulate(ComputeSchedule(request, plan, loads, costs), costs).timeline;
}

std::string PlanTrace(const PlanReport& report) { return ToChromeTrace(PlanTimeline(report)); }

}  // namespace equipoise
