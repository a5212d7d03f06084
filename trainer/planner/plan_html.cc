#include "trainer/planner/plan_html.h"

#include <fmt/format.h>

#include <sstream>
#include <string>

#include "trainer/outputs/html_text.h"
#include "trainer/outputs/report_style.h"
#include "trainer/planner/plan_charts.h"

namespace equipoise {
namespace {

std::string Element(const std::string& tag, const std::string& text) {
  return fmt::format("<{0}>{1}</{0}>", tag, EscapeHtml(text));
}

std::string Tile(const std::string& name, const std::string& value) {
  return fmt::format("<div>{}{}</div>", Element("dt", name), Element("dd", value));
}

std::string Tiles(const PlanReport& report) {
  const PlanForecast& f = report.forecast;
  const auto percent = [](double share) { return ReadableNumber(100 * share) + " %"; };
  const std::string tiles = Tile("step", ReadableNumber(f.step_s.p50) + " s") +
                            Tile("MFU", percent(f.mfu)) +
                            Tile("waiting", percent(f.bubbles.total())) +
                            Tile("tokens/s", ReadableNumber(f.tokens_per_s)) +
                            Tile("ranks", std::to_string(report.ranks())) +
                            Tile("GPU-days", ReadableNumber(report.gpu_days()));
  return fmt::format("<dl class=\"tiles\">{}</dl>\n", tiles);
}

}  // namespace

std::string RenderPlan(const PlanReport& report) {
  std::ostringstream text;
  PrintPlan(report, /*explain=*/true, text);
  std::string histograms;
  for (const SampleHistogram& each : report.histograms) histograms += HistogramChart(each);
  const std::string title = "Plan of " + report.config;
  const std::string head = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "{}\n<style>{}{}</style>\n</head>\n",
      Element("title", title), ReportStyle(), PlanChartStyle());
  const std::string lead =
      fmt::format("{}\n{}\n", Element("h1", title), Element("p", DescribeMesh(report.best().plan)));
  const std::string figures = fmt::format("{}\n<div class=\"card\">{}</div>\n",
                                          Element("h2", "All figures"), Element("pre", text.str()));
  return head + "<body>\n<main>\n" + lead + Tiles(report) + GanttCharts(report) +
         StageChart(report) + MemoryChart(report) + histograms + figures +
         "</main>\n</body>\n</html>\n";
}

}  // namespace equipoise
