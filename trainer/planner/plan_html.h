#pragma once

#include <string>

#include "trainer/planner/plan_report.h"

namespace equipoise {

// Renders a plan as one self-contained HTML page: a Gantt chart of the step, times and memory by
// rank, histograms of the samples, and the text of PrintPlan(). Pure.
std::string RenderPlan(const PlanReport& report);

}  // namespace equipoise
