#include "trainer/planner/plan_trace.h"

#include <numeric>

#include "balance/search/plan_fit.h"
#include "balance/search/planned_step.h"
#include "configs/base/json.h"
#include "parallel/schedule/simulate.h"
#include "parallel/trace_file.h"

namespace equipoise {

Timeline PlanTimeline(const PlanRequest& request, const Plan& plan) {
  const PlanFitter fitter(request, plan);
  const std::vector<LayerLoad> loads = fitter.HeaviestLoads(plan.data());
  const LayerCostTable table(fitter.costs(), loads);
  std::vector<int> packs(loads.size());
  std::iota(packs.begin(), packs.end(), 0);
  const PlannedStep step(StageLayout(request.model, plan, request.frozen), table, request.cluster,
                         packs, request.RunsAhead(plan));
  return Simulate(step.schedule, step.costs).timeline;
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
