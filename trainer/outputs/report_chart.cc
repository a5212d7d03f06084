#include "trainer/outputs/report_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "trainer/outputs/html_text.h"

namespace equipoise {
namespace {

constexpr double kWidth = 560, kHeight = 230;
constexpr double kLeft = 58, kRight = 14, kTop = 10, kBottom = 28;
constexpr size_t kMostPoints = 400;

using Points = std::vector<std::pair<double, double>>;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

std::string Decimal(double value) { return fmt::format("{:.1f}", value); }

// Reduces a curve to the means of equal intervals; an interval without a finite value is a gap.
Points Downsampled(const Points& points) {
  if (points.size() <= kMostPoints) return points;
  Points means;
  for (size_t i = 0; i < kMostPoints; ++i) {
    const size_t begin = i * points.size() / kMostPoints;
    const size_t end = (i + 1) * points.size() / kMostPoints;
    double sum = 0, count = 0;
    for (size_t k = begin; k < end; ++k) {
      if (!std::isfinite(points[k].second)) continue;
      sum += points[k].second;
      ++count;
    }
    means.emplace_back(points[end - 1].first, sum / count);
  }
  return means;
}

// Centred moving average over about a twentieth of the curve; unlike a trailing average it has no
// lag.
Points Average(const Points& points) {
  const size_t half = points.size() / 40;
  Points average;
  for (size_t i = 0; i < points.size(); ++i) {
    double sum = 0, count = 0;
    const size_t end = std::min(points.size(), i + half + 1);
    for (size_t k = i - std::min(i, half); k < end; ++k) {
      if (!std::isfinite(points[k].second)) continue;
      sum += points[k].second;
      ++count;
    }
    average.emplace_back(points[i].first, sum / count);
  }
  return average;
}

std::string Tick(const std::string& anchor, double x, double y, double value) {
  return fmt::format("<text class=\"tick\" text-anchor=\"{}\" x=\"{}\" y=\"{}\">{}</text>", anchor,
                     Decimal(x), Decimal(y), ReadableNumber(value));
}

// Maps steps and values to coordinates of the SVG.
class Axes {
 public:
  Axes(Range x, Range y, bool logarithmic) : x_(x), y_(y), logarithmic_(logarithmic) {
    if (x_.low == x_.high) x_.high = x_.low + 1;
    if (logarithmic_) {
      y_ = {std::log10(y.low), std::log10(y.high)};
    } else {
      if (y_.low > 0 && y_.low < 0.5 * y_.high) y_.low = 0;
      if (y_.low == y_.high) {
        const double pad = y_.low == 0 ? 0.5 : std::fabs(y_.low) / 2;
        y_ = {y_.low - pad, y_.high + pad};
      }
    }
    const double margin = 0.04 * (y_.high - y_.low);
    if (logarithmic_ || y_.low != 0) y_.low -= margin;
    y_.high += margin;
  }

  double X(double step) const {
    return kLeft + (step - x_.low) / (x_.high - x_.low) * (kWidth - kLeft - kRight);
  }
  double Y(double value) const {
    const double at = logarithmic_ ? std::log10(value) : value;
    return kHeight - kBottom - (at - y_.low) / (y_.high - y_.low) * (kHeight - kTop - kBottom);
  }

  std::string Render() const {
    std::string out;
    for (const double value : ValueTicks()) {
      const std::string y = Decimal(Y(value));
      out += fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>{}",
                         Decimal(kLeft), Decimal(kWidth - kRight), y, y,
                         Tick("end", kLeft - 8, Y(value) + 4, value));
    }
    for (const double step : AxisTicks(x_.low, x_.high, 6)) {
      if (step == std::floor(step)) out += Tick("middle", X(step), kHeight - 8, step);
    }
    return out;
  }

 private:
  std::vector<double> ValueTicks() const {
    if (!logarithmic_) return AxisTicks(y_.low, y_.high, 5);
    std::vector<double> ticks;
    for (double power = std::floor(y_.low); power <= std::ceil(y_.high); ++power) {
      for (const double digit : {1.0, 3.0}) {
        const double value = digit * std::pow(10.0, power);
        if (std::log10(value) >= y_.low && std::log10(value) <= y_.high) ticks.push_back(value);
      }
    }
    return ticks;
  }

  Range x_, y_;
  bool logarithmic_;
};

std::string Path(const Points& points, const Axes& axes, const std::string& style) {
  std::string line, dots;
  const auto finite = [&](size_t i) {
    return i < points.size() && std::isfinite(points[i].second);
  };
  for (size_t i = 0; i < points.size(); ++i) {
    if (!finite(i)) continue;
    const std::string at =
        fmt::format("{} {}", Decimal(axes.X(points[i].first)), Decimal(axes.Y(points[i].second)));
    const bool joined = i > 0 && finite(i - 1);
    if (joined || finite(i + 1)) {
      line += (joined ? "L" : "M") + at;
    } else {
      dots += fmt::format("M{}h0", at);
    }
  }
  std::string out;
  if (!line.empty()) out += fmt::format("<path class=\"{}\" d=\"{}\"/>", style, line);
  if (!dots.empty()) out += fmt::format("<path class=\"{} dot\" d=\"{}\"/>", style, dots);
  return out;
}

std::optional<double> LastFinite(const Points& points) {
  for (auto point = points.rbegin(); point != points.rend(); ++point) {
    if (std::isfinite(point->second)) return point->second;
  }
  return std::nullopt;
}

std::string Caption(const Chart& chart) {
  std::string out = fmt::format("<figcaption><b>{}</b>", EscapeHtml(chart.title));
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const std::optional<double> last = LastFinite(chart.series[i].points);
    if (!last) continue;
    out +=
        fmt::format("<span class=\"key k{}\">{} {}{}</span>", i, EscapeHtml(chart.series[i].name),
                    ReadableNumber(*last), EscapeHtml(chart.unit));
  }
  return out + "</figcaption>";
}

}  // namespace

std::vector<double> AxisTicks(double low, double high, int count) {
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double digit : {5.0, 2.0, 1.0}) {
    if (digit * power >= rough) step = digit * power;
  }
  std::vector<double> ticks;
  const auto last = static_cast<int64_t>(std::floor(high / step + 1e-9));
  for (auto i = static_cast<int64_t>(std::ceil(low / step - 1e-9)); i <= last; ++i) {
    ticks.push_back(static_cast<double>(i) * step);
  }
  return ticks;
}

std::string RenderChart(const Chart& chart) {
  Range x, y;
  std::vector<Points> curves;
  for (const Series& series : chart.series) {
    curves.push_back(Downsampled(series.points));
    for (const auto& [step, value] : curves.back()) {
      if (!std::isfinite(value)) continue;
      x.Add(step);
      y.Add(value);
    }
  }
  if (y.empty()) return "";
  const bool wide = y.low > 0 && y.high > 50 * y.low;
  const Axes axes(x, y, chart.logarithmic && wide);
  std::string lines;
  for (size_t i = 0; i < curves.size(); ++i) {
    const std::string style = fmt::format("line s{}", i);
    const bool smooth = chart.series[i].smooth && curves[i].size() > 30;
    lines += Path(curves[i], axes, style + (smooth ? " raw" : ""));
    if (smooth) lines += Path(Average(curves[i]), axes, style);
  }
  return fmt::format(
      "<figure>{}<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{} over steps\">{}{}</svg>"
      "</figure>\n",
      Caption(chart), Decimal(kWidth), Decimal(kHeight), EscapeHtml(chart.title), axes.Render(),
      lines);
}

}  // namespace equipoise
