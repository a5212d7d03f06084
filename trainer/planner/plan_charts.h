#pragma once

#include <string>

#include "trainer/planner/plan_report.h"

namespace equipoise {

// Charts of a plan's HTML page: headings and <figure>s with inline SVG that use the CSS classes of
// PlanChartStyle(). Pure.

// Gantt chart of a step in simulated time, with one row per pipeline rank: computation above,
// communication as a thin line below. Where spans are shorter than a column of the picture, a
// column shows the kind of op that fills most of it, and a second chart shows the first spans one
// by one.
std::string GanttCharts(const PlanReport& report);
// Forward and backward time of a micro-batch on each stage, in milliseconds.
std::string StageChart(const PlanReport& report);
// Memory of each pipeline rank by kind, compared with that of the device.
std::string MemoryChart(const PlanReport& report);
// Histogram of the samples' tiles or tokens.
std::string HistogramChart(const SampleHistogram& histogram);

// CSS of the charts, for light and dark mode.
std::string PlanChartStyle();

}  // namespace equipoise
