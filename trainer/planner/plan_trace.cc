#include "trainer/planner/plan_trace.h"

#include "balance/costs/stage_costs.h"
#include "balance/search/plan_fit.h"
#include "configs/base/json.h"
#include "parallel/schedule/simulate.h"
#include "parallel/trace_file.h"

namespace equipoise {

Timeline PlanTimeline(const PlanRequest& request, const Plan& plan) {
  const PlanFitter fitter(request, plan);
  const std::vector<LayerLoad> loads = fitter.HeaviestLoads(plan.data());
  const SimulationCosts costs = StageCosts(fitter.costs(), plan, request.cluster, loads);
  return Simulate(ComputeSchedule(request, plan, loads, costs), costs).timeline;
}

Timeline PlanTimeline(const PlanReport& report) {
  return PlanTimeline(report.request, report.best().plan);
}

std::string PlanTrace(const PlanReport& report) {
  Json trace = Json::parse(ToChromeTrace(PlanTimeline(report)));
  trace["mesh"] = MeshJson(Mesh({{Axis::kPipeline, report.best().plan.pipeline()}}));
  return trace.dump() + "\n";
}

}  // namespace equipoise
