#include "balance/search/planned_step.h"

#include "balance/costs/stage_costs.h"
#include "models/stages/plan_schedule.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/prefetch.h"

namespace equipoise {

PlannedStep::PlannedStep(const StageLayout& stages, const LayerCostTable& table,
                         const Cluster& cluster, const std::vector<int>& own, bool ahead)
    : packs(own) {
  const Plan& plan = stages.plan();
  StepLoads loads;
  for (const int pack : own) loads.now.push_back(table.load(pack));
  if (DelaysUpdates(plan.schedule)) {
    loads.next = loads.now;
    loads.begun = true;
    packs.insert(packs.end(), own.begin(), own.end());
  } else if (ahead) {
    const auto count = static_cast<int>(own.size());
    loads.next = loads.now;
    loads.owners = RoundRobinOwners(stages.Encoder(loads.now), plan.pipeline(), count);
    packs.insert(packs.end(), own.begin(), own.end());
  }
  taken = loads.taken();
  costs = StageCosts(table, plan, cluster, packs);
  schedule = PlanSchedule(plan).ComputeOps(stages, loads, costs);
  costs = WithTaken(costs, taken);
}

}  // namespace equipoise
