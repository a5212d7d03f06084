#include "trainer/plan_html.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>
#include <string_view>
#include <vector>

#include "trainer/html_text.h"
#include "trainer/plan_trace.h"
#include "trainer/report_style.h"

namespace equipoise {
namespace {

constexpr double kWidth = 1160, kLabel = 70, kRow = 18;
constexpr size_t kMostSpans = 20'000;  // drawn of the Gantt chart

// Colours of the parts: forward, backward, transfers; memory from weights to reserve.
constexpr const char* kStyle = R"css(
.f { fill: #2563eb; } .b { fill: #d9480f; } .t { fill: #94a3b8; } .o { fill: #15803d; }
.m0 { fill: #2563eb; } .m1 { fill: #60a5fa; } .m2 { fill: #a78bfa; } .m3 { fill: #d9480f; }
.m4 { fill: #f59e0b; } .m5 { fill: #94a3b8; } .m6 { fill: #cbd5e1; }
.label { fill: var(--soft); font-size: 12px; }
.legend span { margin-right: 14px; } .legend i { display: inline-block; width: 10px; height: 10px;
  margin-right: 5px; }
)css";

std::string Number(double value, const char* format = "%.2f") {
  std::array<char, 48> text;
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string Element(std::string_view tag, std::string_view text) {
  return "<" + std::string(tag) + ">" + EscapeHtml(text) + "</" + std::string(tag) + ">";
}

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

std::string Rect(const Box& box, const std::string& kind, const std::string& title) {
  return "<rect class=\"" + kind + "\" x=\"" + Number(box.x) + "\" y=\"" + Number(box.y) +
         "\" width=\"" + Number(std::max(0.3, box.width)) + "\" height=\"" + Number(box.height) +
         "\"><title>" + EscapeHtml(title) + "</title></rect>\n";
}

std::string Label(double y, const std::string& text) {
  return "<text class=\"label\" x=\"0\" y=\"" + Number(y) + "\">" + EscapeHtml(text) + "</text>\n";
}

std::string Figure(const std::string& title, double height, const std::string& shapes) {
  return Element("h2", title) + "\n<figure><svg viewBox=\"0 0 " + Number(kWidth) + " " +
         Number(height) + "\" role=\"img\" aria-label=\"" + EscapeHtml(title) + "\">\n" + shapes +
         "</svg></figure>\n";
}

std::string KindOf(const Span& span) {
  if (span.lane != "compute") return "t";
  const char kind = span.name[span.name.find_first_not_of("0123456789")];
  return kind == 'F' || kind == 'V' ? "f" : kind == 'O' ? "o" : "b";
}

// Compute above, communication as a thin line below.
std::string Gantt(const PlanReport& report) {
  const Timeline timeline = PlanTimeline(report);
  double end = 0;
  for (const Span& span : timeline) end = std::max(end, span.end_s);
  const int ranks = report.best().plan.pipeline;
  std::string shapes;
  for (int rank = 0; rank < ranks; ++rank) {
    shapes += Label((rank + 0.7) * kRow, "rank " + std::to_string(rank));
  }
  size_t drawn = 0;
  for (const Span& span : timeline) {
    if (++drawn > kMostSpans) break;
    const bool compute = span.lane == "compute";
    const double scale = (kWidth - kLabel) / end;
    shapes += Rect({kLabel + span.start_s * scale, span.rank * kRow + (compute ? 0 : kRow - 5),
                    (span.end_s - span.start_s) * scale, compute ? kRow - 6 : 3},
                   KindOf(span),
                   span.name + " " + Number(1e3 * span.start_s, "%.1f") + " to " +
                       Number(1e3 * span.end_s, "%.1f") + " ms");
  }
  std::string note;
  if (timeline.size() > kMostSpans) {
    note = "<p class=\"soft\">the first " + std::to_string(kMostSpans) + " of " +
           std::to_string(timeline.size()) + " spans; --trace writes all</p>\n";
  }
  return Figure("One step: " + Number(end, "%.4g") + " s", ranks * kRow, shapes) + note +
         "<p class=\"legend\"><span><i style=\"background:#2563eb\"></i>forward</span><span><i "
         "style=\"background:#d9480f\"></i>backward</span><span><i "
         "style=\"background:#94a3b8\"></i>communication</span><span><i "
         "style=\"background:#15803d\"></i>optimizer</span></p>\n";
}

std::string StageBars(const PlanReport& report) {
  const std::vector<StageForecast>& stages = report.forecast.stages;
  double most = 0;
  for (const StageForecast& each : stages) {
    most = std::max(most, each.forward_s + each.backward_s);
  }
  const double scale = (kWidth - kLabel) / most;
  std::string shapes;
  for (size_t s = 0; s < stages.size(); ++s) {
    const StageForecast& each = stages[s];
    const double y = static_cast<double>(s) * kRow, width = each.forward_s * scale;
    shapes += Label(y + 0.7 * kRow, "stage " + std::to_string(s));
    shapes += Rect({kLabel, y, width, kRow - 4}, "f",
                   "forward " + Number(1e3 * each.forward_s, "%.1f") + " ms");
    shapes += Rect({kLabel + width, y, each.backward_s * scale, kRow - 4}, "b",
                   "backward " + Number(1e3 * each.backward_s, "%.1f") + " ms, of it " +
                       Number(1e3 * each.recompute_s, "%.1f") + " ms computed again");
  }
  return Figure("A micro-batch's time on each stage", static_cast<double>(stages.size()) * kRow,
                shapes);
}

std::string MemoryBars(const PlanReport& report) {
  const double memory = static_cast<double>(report.request.cluster.memory_bytes);
  std::string shapes;
  for (size_t rank = 0; rank < report.best().memory.size(); ++rank) {
    const MemoryForecast& m = report.best().memory[rank];
    const std::array<std::pair<const char*, int64_t>, 7> parts = {
        {{"weights", m.parameters},
         {"gradients", m.gradients},
         {"optimizer", m.optimizer},
         {"activations", m.activations},
         {"temporary", m.temporary},
         {"communication", m.communication},
         {"reserve", m.reserve}}};
    const double y = static_cast<double>(rank) * kRow;
    shapes += Label(y + 0.7 * kRow, "rank " + std::to_string(rank));
    double x = kLabel;
    for (size_t part = 0; part < parts.size(); ++part) {
      const double bytes = static_cast<double>(parts[part].second);
      const double width = (kWidth - kLabel) * bytes / memory;
      shapes += Rect({x, y, width, kRow - 4}, "m" + std::to_string(part),
                     std::string(parts[part].first) + " " + Number(bytes / (1 << 30)) + " GiB");
      x += width;
    }
  }
  return Figure("Memory of each rank, of " + Number(memory / (1 << 30), "%.1f") + " GiB",
                static_cast<double>(report.best().memory.size()) * kRow, shapes);
}

std::string HistogramFigure(const SampleHistogram& histogram) {
  constexpr double kHeight = 120;
  int64_t most = 1;
  for (const int64_t count : histogram.counts) most = std::max(most, count);
  const double width = (kWidth - kLabel) / static_cast<double>(histogram.counts.size());
  std::string shapes;
  for (size_t bin = 0; bin < histogram.counts.size(); ++bin) {
    const double height =
        kHeight * static_cast<double>(histogram.counts[bin]) / static_cast<double>(most);
    const int64_t from = static_cast<int64_t>(bin) * histogram.bin_width;
    shapes +=
        Rect({kLabel + static_cast<double>(bin) * width, kHeight - height, width - 1, height}, "f",
             std::to_string(histogram.counts[bin]) + " samples of " + std::to_string(from) +
                 " to " + std::to_string(from + histogram.bin_width - 1));
  }
  return Figure(histogram.title, kHeight, shapes);
}

}  // namespace

std::string RenderPlan(const PlanReport& report) {
  std::ostringstream text;
  PrintPlan(report, /*explain=*/true, text);
  std::string histograms;
  for (const SampleHistogram& each : report.histograms) histograms += HistogramFigure(each);
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n" +
         Element("title", "Plan of " + report.config) + "\n<style>" + std::string(ReportStyle()) +
         kStyle + "</style>\n</head>\n<body>\n<main>\n" +
         Element("h1", "Plan of " + report.config) + "\n" +
         Element("p", DescribeMesh(report.best().plan)) + "\n" + Gantt(report) + StageBars(report) +
         MemoryBars(report) + histograms + Element("h2", "All figures") + "\n<div class=\"card\">" +
         Element("pre", text.str()) + "</div>\n</main>\n</body>\n</html>\n";
}

}  // namespace equipoise
