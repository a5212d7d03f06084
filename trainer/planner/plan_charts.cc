#include "trainer/planner/plan_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "trainer/outputs/html_text.h"
#include "trainer/outputs/report_chart.h"
#include "trainer/planner/plan_trace.h"

namespace equipoise {
namespace {

constexpr double kWidth = 1160, kLabel = 64, kRow = 18, kAxis = 22;
constexpr double kValues = 150;     // width of the figures to the right of bars
constexpr size_t kFineSpans = 600;  // most spans of a rank that are drawn one by one
constexpr size_t kShownSpans = 90;  // spans of a rank in the chart of the first spans

struct Part {
  const char* style;
  const char* name;
};
// The last is drawn below the others; the first two are those of a model without an encoder apart.
constexpr std::array<Part, 6> kOps = {{{"f", "forward"},
                                       {"b", "backward"},
                                       {"v", "encoder forward"},
                                       {"u", "encoder backward"},
                                       {"o", "optimizer"},
                                       {"t", "communication"}}};
constexpr size_t kTransfers = kOps.size() - 1;
constexpr std::array<Part, 7> kMemory = {{{"m0", "weights"},
                                          {"m1", "gradients"},
                                          {"m2", "optimizer"},
                                          {"m3", "activations"},
                                          {"m4", "temporary"},
                                          {"m5", "communication"},
                                          {"m6", "reserve"}}};

std::string Number(double value) { return fmt::format("{:.2f}", value); }

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

std::string Rect(const Box& box, const std::string& style, const std::string& title = "") {
  const std::string rect = fmt::format(
      "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", style, Number(box.x),
      Number(box.y), Number(std::max(0.3, box.width)), Number(box.height));
  if (title.empty()) return rect + "/>\n";
  return fmt::format("{}><title>{}</title></rect>\n", rect, EscapeHtml(title));
}

std::string Text(double x, double y, const std::string& text, const std::string& anchor = "start") {
  return fmt::format("<text class=\"tick\" text-anchor=\"{}\" x=\"{}\" y=\"{}\">{}</text>\n",
                     anchor, Number(x), Number(y), EscapeHtml(text));
}

std::string RowLabel(double row, const std::string& text) {
  return Text(0, (row + 0.7) * kRow, text);
}

// Maps values in [low, high] to x coordinates between the labels and `right`.
struct Scale {
  double low = 0, high = 1, right = kWidth;
  double X(double value) const { return kLabel + (value - low) / (high - low) * (right - kLabel); }
  // Grid lines of this height at round numbers, with the numbers below; the last has the unit.
  std::string Axis(double height, const std::string& unit) const {
    std::string out;
    const std::vector<double> ticks = AxisTicks(low, high, 8);
    for (const double tick : ticks) {
      const std::string x = Number(X(tick));
      out += fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"0\" y2=\"{}\"/>\n", x, x,
                         Number(height));
      const bool last = tick == ticks.back();
      out += Text(X(tick), height + 15, ReadableNumber(tick) + (last ? " " + unit : ""),
                  last && X(tick) > kWidth - 30 ? "end" : "middle");
    }
    return out;
  }
};

std::string Legend(const Part* parts, size_t count) {
  std::string out = "<p class=\"legend\">";
  for (size_t i = 0; i < count; ++i) {
    out += fmt::format("<span><i class=\"{}\"></i>{}</span>", parts[i].style, parts[i].name);
  }
  return out + "</p>\n";
}

std::string Figure(const std::string& title, double height, const std::string& shapes,
                   const std::string& legend = "") {
  return fmt::format(
      "<h2>{0}</h2>\n<figure class=\"plan\"><svg viewBox=\"0 0 {1} {2}\" role=\"img\" "
      "aria-label=\"{0}\">\n{3}</svg>{4}</figure>\n",
      EscapeHtml(title), Number(kWidth), Number(height), shapes, legend);
}

// The index of a span's kind in kOps.
size_t KindOf(const Span& span) {
  if (!span.lane.starts_with("compute")) return kTransfers;
  switch (span.name[span.name.find_first_not_of("0123456789")]) {
    case 'F':
      return 0;
    case 'V':
      return 2;
    case 'U':
      return 3;
    case 'O':
      return 4;
    default:
      return 1;  // whole, or a half
  }
}

Box RowBox(const Scale& scale, int rank, size_t kind, std::pair<double, double> seconds) {
  const bool compute = kind < kTransfers;
  const double x = scale.X(seconds.first);
  return {x, rank * kRow + (compute ? 0 : kRow - 5), scale.X(seconds.second) - x,
          compute ? kRow - 6 : 3};
}

// Draws each span, cut at the end of the scale.
std::string Spans(const Timeline& timeline, const Scale& scale) {
  std::string shapes;
  for (const Span& span : timeline) {
    if (span.start_s >= scale.high) continue;
    shapes += Rect(
        RowBox(scale, span.rank, KindOf(span), {span.start_s, std::min(span.end_s, scale.high)}),
        kOps[KindOf(span)].style,
        fmt::format("{} {:.1f} to {:.1f} ms", span.name, 1e3 * span.start_s, 1e3 * span.end_s));
  }
  return shapes;
}

// Draws each column of a rank in the colour of the kind of op that fills most of it; adjacent
// columns of one kind are merged. O(spans + ranks x columns), regardless of how fine the spans are.
std::string Columns(const Timeline& timeline, int ranks, const Scale& scale) {
  constexpr size_t kColumns = 1096;
  const double width_s = (scale.high - scale.low) / kColumns;
  std::vector<std::array<double, kOps.size()>> covered(static_cast<size_t>(ranks) * kColumns);
  for (const Span& span : timeline) {
    const auto row = static_cast<size_t>(span.rank) * kColumns;
    for (auto c = static_cast<size_t>(span.start_s / width_s); c < kColumns; ++c) {
      const double begin = static_cast<double>(c) * width_s;
      if (begin >= span.end_s) break;
      covered[row + c][KindOf(span)] +=
          std::min(span.end_s, begin + width_s) - std::max(span.start_s, begin);
    }
  }
  // Whether a column has a kind: the largest kind of computation where computation fills at least
  // half of the column; communication, drawn separately, where it does.
  const auto is = [&](int rank, size_t column, size_t kind) {
    if (column == kColumns) return false;
    const auto& all = covered[static_cast<size_t>(rank) * kColumns + column];
    if (kind == kTransfers) return all[kTransfers] >= 0.5 * width_s;
    return std::accumulate(all.begin(), all.begin() + kTransfers, 0.0) >= 0.5 * width_s &&
           std::max_element(all.begin(), all.begin() + kTransfers) - all.begin() ==
               static_cast<std::ptrdiff_t>(kind);
  };
  std::string shapes;
  for (int rank = 0; rank < ranks; ++rank) {
    for (size_t kind = 0; kind < kOps.size(); ++kind) {
      for (size_t begin = 0; begin < kColumns; ++begin) {
        size_t end = begin;
        while (is(rank, end, kind)) ++end;
        if (end == begin) continue;
        shapes +=
            Rect(RowBox(scale, rank, kind,
                        {static_cast<double>(begin) * width_s, static_cast<double>(end) * width_s}),
                 kOps[kind].style);
        begin = end;
      }
    }
  }
  return shapes;
}

}  // namespace

std::string GanttCharts(const PlanReport& report) {
  const Timeline timeline = PlanTimeline(report);
  double end_s = 0;
  for (const Span& span : timeline) end_s = std::max(end_s, span.end_s);
  const int ranks = report.best().plan.pipeline();
  const size_t of_rank = timeline.size() / static_cast<size_t>(ranks);
  std::string labels;
  for (int rank = 0; rank < ranks; ++rank) labels += RowLabel(rank, fmt::format("rank {}", rank));
  const double height = ranks * kRow;
  std::vector<Part> shown(kOps.begin(), kOps.end());
  if (report.best().plan.encoder == EncoderPlacement::kInline) {
    shown.erase(shown.begin() + 2, shown.begin() + 4);
  }
  const std::string legend = Legend(shown.data(), shown.size());
  const bool fine = of_rank > kFineSpans;
  const Scale step{0, end_s};
  const std::string title = fmt::format("One step: {:.4g} s", end_s);
  std::string out = Figure(title, height + kAxis,
                           step.Axis(height, "s") + labels +
                               (fine ? Columns(timeline, ranks, step) : Spans(timeline, step)),
                           legend);
  if (!fine) return out;
  const Scale begin{0, end_s * static_cast<double>(kShownSpans) / static_cast<double>(of_rank)};
  return out + Figure(fmt::format("Its first {:.2g} s", begin.high), height + kAxis,
                      begin.Axis(height, "s") + labels + Spans(timeline, begin), legend);
}

std::string StageChart(const PlanReport& report) {
  const std::vector<StageForecast>& stages = report.forecast.stages;
  Scale scale{0, 0, kWidth - kValues};
  for (const StageForecast& each : stages) {
    scale.high = std::max(scale.high, 1e3 * (each.forward_s + each.backward_s));
  }
  const double height = static_cast<double>(stages.size()) * kRow;
  std::string shapes = scale.Axis(height, "ms");
  for (size_t s = 0; s < stages.size(); ++s) {
    const double forward = 1e3 * stages[s].forward_s, backward = 1e3 * stages[s].backward_s;
    const double y = static_cast<double>(s) * kRow, middle = scale.X(forward);
    const double end = scale.X(forward + backward);
    shapes += RowLabel(static_cast<double>(s), fmt::format("stage {}", s));
    shapes += Rect({kLabel, y, middle - kLabel, kRow - 4}, "f",
                   fmt::format("forward {:.1f} ms", forward));
    shapes += Rect({middle, y, end - middle, kRow - 4}, "b",
                   fmt::format("backward {:.1f} ms, of it {:.1f} ms computed again", backward,
                               1e3 * stages[s].recompute_s));
    shapes += Text(end + 6, y + 0.7 * kRow, fmt::format("{:.1f} + {:.1f} ms", forward, backward));
  }
  return Figure("A micro-batch's time on each stage", height + kAxis, shapes,
                Legend(kOps.data(), 2));
}

std::string MemoryChart(const PlanReport& report) {
  constexpr double kGiB = 1 << 30;
  const double memory = static_cast<double>(report.request.cluster.memory_bytes) / kGiB;
  const std::vector<MemoryForecast>& ranks = report.best().memory;
  const Scale scale{0, memory, kWidth - kValues};
  const double height = static_cast<double>(ranks.size()) * kRow;
  std::string shapes = scale.Axis(height, "GiB");
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const MemoryForecast& m = ranks[rank];
    const std::array<int64_t, kMemory.size()> bytes = {m.parameters,  m.gradients, m.optimizer,
                                                       m.activations, m.temporary, m.communication,
                                                       m.reserve};
    const double y = static_cast<double>(rank) * kRow;
    shapes += RowLabel(static_cast<double>(rank), fmt::format("rank {}", rank));
    double from = 0;
    for (size_t part = 0; part < bytes.size(); ++part) {
      const double size = static_cast<double>(bytes[part]) / kGiB;
      shapes +=
          Rect({scale.X(from), y, scale.X(from + size) - scale.X(from), kRow - 4},
               kMemory[part].style, fmt::format("{} {} GiB", kMemory[part].name, Number(size)));
      from += size;
    }
    shapes += Text(scale.X(from) + 6, y + 0.7 * kRow, fmt::format("{:.4g} GiB", from));
  }
  return Figure(fmt::format("Memory of each rank, of {:.4g} GiB", memory), height + kAxis, shapes,
                Legend(kMemory.data(), kMemory.size()));
}

std::string HistogramChart(const SampleHistogram& histogram) {
  constexpr double kTop = 16, kHeight = 120;
  int64_t most = 1;
  for (const int64_t count : histogram.counts) most = std::max(most, count);
  // A bin of a single value is centred above its number.
  const double shift = histogram.bin_width == 1 ? 0.5 : 0;
  const auto bins = static_cast<double>(histogram.counts.size());
  const auto wide = static_cast<double>(histogram.bin_width);
  const Scale scale{-shift, bins * wide - shift};
  std::string shapes = scale.Axis(kTop + kHeight, "");
  for (size_t bin = 0; bin < histogram.counts.size(); ++bin) {
    const int64_t count = histogram.counts[bin];
    if (count == 0) continue;
    const int64_t from = static_cast<int64_t>(bin) * histogram.bin_width;
    const double height = kHeight * static_cast<double>(count) / static_cast<double>(most);
    const double x = scale.X(static_cast<double>(from) - shift);
    const double width = scale.X(static_cast<double>(from) - shift + wide) - x;
    shapes +=
        Rect({x, kTop + kHeight - height, std::max(1.0, width - 1), height}, "f",
             fmt::format("{} samples of {}{}", ReadableNumber(static_cast<double>(count)), from,
                         shift > 0 ? "" : fmt::format(" to {}", from + histogram.bin_width - 1)));
    if (count == most) {
      shapes += Text(x + width / 2, kTop - 4, ReadableNumber(static_cast<double>(count)), "middle");
    }
  }
  return Figure(histogram.title, kTop + kHeight + kAxis, shapes);
}

std::string PlanChartStyle() {
  return R"css(
.f { fill: #2563eb; background: #2563eb; } .b { fill: #d9480f; background: #d9480f; }
.v { fill: #0d9488; background: #0d9488; } .u { fill: #c026d3; background: #c026d3; }
.t { fill: #94a3b8; background: #94a3b8; } .o { fill: #15803d; background: #15803d; }
.m0 { fill: #2563eb; background: #2563eb; } .m1 { fill: #60a5fa; background: #60a5fa; }
.m2 { fill: #a78bfa; background: #a78bfa; } .m3 { fill: #d9480f; background: #d9480f; }
.m4 { fill: #f59e0b; background: #f59e0b; } .m5 { fill: #64748b; background: #64748b; }
.m6 { fill: #cbd5e1; background: #cbd5e1; }
.plan { overflow-x: auto; } .plan svg { min-width: 820px; }
.plan rect { shape-rendering: crispEdges; }
.legend { margin: 6px 0 0; font-size: 13px; color: var(--soft); }
.legend span { margin-right: 14px; white-space: nowrap; }
.legend i { display: inline-block; width: 10px; height: 10px; margin-right: 5px; }
)css";
}

}  // namespace equipoise
