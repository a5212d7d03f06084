#pragma once

#include <string>
#include <utility>
#include <vector>

namespace equipoise {

// A named curve of (step, value), steps ascending; values that are not finite leave a gap.
struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
  bool smooth = false;  // shown thin, with its moving average over it
};

struct Chart {
  std::string title;
  std::string unit;  // behind the last value; may be empty
  std::vector<Series> series;
  bool logarithmic = false;  // where the values are positive and span more than 1:50
};

// The chart as a <figure> with an inline SVG, drawn with the classes of the report's style; empty
// when no series has a finite value. Long curves are thinned to the means of a few hundred
// intervals. Pure.
std::string RenderChart(const Chart& chart);

// Round numbers within [low, high] for an axis, about `count` of them.
std::vector<double> AxisTicks(double low, double high, int count);

}  // namespace equipoise
