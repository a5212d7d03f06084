#pragma once

#include <string>
#include <utility>
#include <vector>

namespace equipoise {

// A named curve of points (step, value), ascending in step; values that are not finite leave a gap.
struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
  bool smooth = false;  // whether the curve is drawn thin below its moving average
};

struct Chart {
  std::string title;
  std::string unit;  // shown after the last value; may be empty
  std::vector<Series> series;
  bool logarithmic = false;  // if the values are positive and span more than 1:50
};

// Renders a chart as a <figure> with an inline SVG that uses the CSS classes of the report; empty
// when no series has a finite value. Long curves are reduced to the means of a few hundred
// intervals. Pure.
std::string RenderChart(const Chart& chart);

// About `count` round numbers within [low, high] for an axis.
std::vector<double> AxisTicks(double low, double high, int count);

}  // namespace equipoise
