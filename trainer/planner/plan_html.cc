#include "trainer/planner/plan_html.h"

#include <sstream>
#include <string>

#include "trainer/outputs/html_text.h"
#include "trainer/outputs/report_style.h"
#include "trainer/planner/plan_charts.h"

namespace equipoise {
namespace {

std::string Element(const std::string& tag, const std::string& text) {
  return "<" + tag + ">" + EscapeHtml(text) + "</" + tag + ">";
}

std::string Tile(const std::string& name, const std::string& value) {
  return "<div>" + Element("dt", name) + Element("dd", value) + "</div>";
}

std::string Tiles(const PlanReport& report) {
  const PlanForecast& f = report.forecast;
  const auto percent = [](double share) { return ReadableNumber(100 * share) + " %"; };
  return "<dl class=\"tiles\">" + Tile("step", ReadableNumber(f.step_s.p50) + " s") +
         Tile("MFU", percent(f.mfu)) + Tile("waiting", percent(f.bubbles.total())) +
         Tile("tokens/s", ReadableNumber(f.tokens_per_s)) +
         Tile("ranks", std::to_string(report.best().plan.num_ranks())) +
         Tile("GPU-days", ReadableNumber(report.gpu_days())) + "</dl>\n";
}

}  // namespace

std::string RenderPlan(const PlanReport& report) {
  std::ostringstream text;
  PrintPlan(report, /*explain=*/true, text);
  std::string histograms;
  for (const SampleHistogram& each : report.histograms) histograms += HistogramChart(each);
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n" +
         Element("title", "Plan of " + report.config) + "\n<style>" + std::string(ReportStyle()) +
         PlanChartStyle() + "</style>\n</head>\n<body>\n<main>\n" +
         Element("h1", "Plan of " + report.config) + "\n" +
         Element("p", DescribeMesh(report.best().plan)) + "\n" + Tiles(report) +
         GanttCharts(report) + StageChart(report) + MemoryChart(report) + histograms +
         Element("h2", "All figures") + "\n<div class=\"card\">" + Element("pre", text.str()) +
         "</div>\n</main>\n</body>\n</html>\n";
}

}  // namespace equipoise
