#pragma once

#include <string>

#include "parallel/timeline.h"
#include "trainer/planner/plan_report.h"

namespace equipoise {

// The first step of the best plan in simulated time, on the data rank with the most work, for
// chrome://tracing and Perfetto. One row a pipeline rank and lane.
Timeline PlanTimeline(const PlanReport& report);
std::string PlanTrace(const PlanReport& report);

}  // namespace equipoise
