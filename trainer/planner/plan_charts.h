#pragma once

#include <string>

#include "trainer/planner/plan_report.h"

namespace equipoise {

// The charts of a plan's page as <figure>s with inline SVG, headings included, drawn with the
// classes of PlanChartStyle(). Pure.
//
// One step in simulated time, a row a pipeline rank: compute above, communication as a thin line
// below. Where spans are finer than the picture each column shows what fills most of it, and a
// second chart shows the beginning span by span.
std::string GanttCharts(const PlanReport& report);
// Forward and backward of a micro-batch on each stage, milliseconds.
std::string StageChart(const PlanReport& report);
// Memory of each pipeline rank, by kind, in its device's.
std::string MemoryChart(const PlanReport& report);
// Histograms of the samples' tiles and tokens.
std::string HistogramChart(const SampleHistogram& histogram);

// CSS of the charts, for light and dark.
std::string PlanChartStyle();

}  // namespace equipoise
