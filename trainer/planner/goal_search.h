#pragma once

#include <chrono>

#include "balance/search/plan_goal.h"
#include "models/spec/model_config.h"
#include "trainer/planner/limit_search.h"
#include "trainer/planner/plan_report.h"
#include "trainer/planner/plan_run.h"
#include "trainer/planner/plan_workload.h"
#include "trainer/planner/sample_costs.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// The section `goal`, with its deadline in hours from `now`. Throws ConfigError for a deadline that
// is neither hours nor a date, or is over; for ranks that are `started` one that is over is none,
// since they may go on, and their clocks may differ at that moment.
PlanGoal GoalOf(const GoalSection& section, std::chrono::system_clock::time_point now,
                bool started = false);

// A workload with the plan that the goal asks for in front of the others, and how it was chosen.
struct GoalRun {
  FittedRun run;
  GoalReport report;
};

// FitRun() under the section `goal`. With goal.max_gpus and no `target.ranks`, every number of GPUs
// of ClusterSizes() is searched, with the same packs so that they compare; those whose lower bound
// misses a limit are left out. Else the number of ranks is given. Throws UserError with kNoPlan,
// with the nearest miss and what would be kept, where no plan keeps the limits; for ranks that are
// started (`target.started`) report.miss says so instead. Throws ConfigError where a budget is
// given and no price is known.
GoalRun FitGoal(const SampleCosts& costs, const RunConfig& config, const PlannedRun& first,
                const ModelConfig& model, const PlanTarget& target);

// FitGoal() for a run whose plan is given.
GoalRun CheckGoal(const SampleCosts& costs, const RunConfig& config, FittedRun given,
                  const PlanTarget& target);

}  // namespace equipoise
