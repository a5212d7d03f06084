#pragma once

#include <string>

#include "trainer/planner/plan_report.h"

namespace equipoise {

// The plan as one HTML page that needs nothing else: the step as a Gantt chart, times and memory by
// rank, histograms of the samples, and the text of PrintPlan(). Pure.
std::string RenderPlan(const PlanReport& report);

}  // namespace equipoise
