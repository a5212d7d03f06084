#pragma once

#include <string>

#include "parallel/timeline.h"
#include "trainer/planner/plan_report.h"

namespace equipoise {

// The simulated timeline of a plan's first step, on the data rank with the most work.
Timeline PlanTimeline(const PlanRequest& request, const Plan& plan);
// Likewise of the best plan.
Timeline PlanTimeline(const PlanReport& report);
// The same as a trace for chrome://tracing and Perfetto, one row per pipeline rank and lane.
std::string PlanTrace(const PlanReport& report);

}  // namespace equipoise
