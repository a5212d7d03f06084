#pragma once

#include <functional>
#include <vector>

#include "trainer/planner/plan_report.h"

namespace equipoise {

// Runs some steps of a plan and returns the seconds of each, equal on every rank. Throws
// CollectiveRunError, on every rank, when the plan fails.
using TimeSteps = std::function<std::vector<double>(const ScoredPlan&)>;

// Runs all plans in each of `rounds` rounds, every second round in reverse order, so that no plan
// benefits from a machine that warms up or slows down. A plan that fails is not run again, and the
// reason is kept; any other exception ends the trials.
std::vector<PlanTrial> TryPlans(const std::vector<ScoredPlan>& plans, int rounds,
                                const TimeSteps& run);

// Sorts trials by measured median, failed ones last, and the report's plans likewise, with plans
// that were not tried after them. REQUIRES: the trials are of the report's first plans. Throws
// CollectiveRunError when all have failed.
void RankByTrials(std::vector<PlanTrial> trials, PlanReport& report);

}  // namespace equipoise
