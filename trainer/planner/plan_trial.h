#pragma once

#include <functional>
#include <vector>

#include "trainer/planner/plan_report.h"

namespace equipoise {

// Seconds of the timed steps of a plan; the same on every rank. Throws CollectiveRunError, on every
// rank too, where the plan fails.
using TimeSteps = std::function<std::vector<double>(const ScoredPlan&)>;

// Runs each plan in so many rounds, all plans in each round; every second round goes backwards, so
// that a machine which slows down or warms up favours none. A plan that fails is not run again and
// keeps its reason; any other exception ends the trial.
std::vector<PlanTrial> TryPlans(const std::vector<ScoredPlan>& plans, int rounds,
                                const TimeSteps& run);

// Sorts trials by their measured median, failed ones last, and puts the report's plans into the
// same order, plans that were not tried behind them. Throws CollectiveRunError when all have
// failed.
void RankByTrials(std::vector<PlanTrial> trials, PlanReport& report);

}  // namespace equipoise
