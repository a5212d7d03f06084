#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "trainer/doctor/diagnosis.h"
#include "trainer/outputs/html_text.h"
#include "trainer/outputs/report_style.h"

namespace equipoise {
namespace {

constexpr double kWidth = 1160, kLabel = 64, kRow = 20, kValue = 90;

// Colours of computing, the optimizer, and each cause in the order of IdleCause.
constexpr const char* kComputing = "#2563eb";
constexpr const char* kUpdating = "#15803d";
constexpr const char* kColours[] = {"#d9480f", "#f59e0b", "#eab308", "#a3a3a3", "#c026d3",
                                    "#e879f9", "#b91c1c", "#0d9488", "#14b8a6", "#60a5fa",
                                    "#818cf8", "#4d7c0f", "#7c2d12", "#cbd5e1"};
static_assert(std::size(kColours) == kIdleCauses);

std::string Element(const std::string& tag, const std::string& text) {
  return fmt::format("<{0}>{1}</{0}>", tag, EscapeHtml(text));
}

std::string Bar(double x, double y, double width, const char* colour, const std::string& title) {
  if (width <= 0) return "";
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"><title>{}"
      "</title></rect>\n",
      x, y, width, kRow - 5, colour, EscapeHtml(title));
}

// A bar for each rank: computing, updating, then what it is idle for.
std::string Bars(const Diagnosis& diagnosis) {
  const IdleTable& table = diagnosis.table;
  const double scale = (kWidth - kLabel - kValue) / table.step_s;
  std::string shapes;
  for (size_t i = 0; i < table.ranks.size(); ++i) {
    const RankIdle& rank = table.ranks[i];
    const double y = static_cast<double>(i) * kRow;
    double x = kLabel;
    const auto add = [&](double seconds, const char* colour, const std::string& name) {
      shapes +=
          Bar(x, y, seconds * scale, colour,
              fmt::format("{}: {:.4g} s, {:.1f} %", name, seconds, 100 * seconds / table.step_s));
      x += seconds * scale;
    };
    shapes += fmt::format("<text class=\"tick\" x=\"0\" y=\"{:.1f}\">rank {}</text>\n",
                          y + 0.7 * kRow, i);
    add(rank.compute_s, kComputing, "computing");
    add(rank.update_s, kUpdating, "optimizer");
    for (const IdleCause cause : diagnosis.causes)
      add(rank[cause], kColours[static_cast<size_t>(cause)], ToString(cause));
    shapes += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\">{:.1f} % idle</text>\n",
                          kWidth - kValue + 8, y + 0.7 * kRow, 100 * rank.idle() / table.step_s);
  }
  return fmt::format(
      "<figure><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"A step on each rank\">\n{}"
      "</svg></figure>\n",
      kWidth, static_cast<double>(table.ranks.size()) * kRow, shapes);
}

std::string Swatch(const char* colour, const std::string& name) {
  return fmt::format(
      "<td><i style=\"display:inline-block;width:10px;height:10px;margin-right:6px;background:{}\">"
      "</i>{}</td>",
      colour, EscapeHtml(name));
}

std::string Causes(const Diagnosis& diagnosis) {
  const IdleTable& table = diagnosis.table;
  std::string rows = "<tr><th>cause</th><th>share</th><th>seconds</th><th>why</th></tr>\n";
  const auto add = [&](const char* colour, const std::string& name, double seconds,
                       const std::string& why) {
    rows += fmt::format("<tr>{}{}{}{}</tr>\n", Swatch(colour, name),
                        Element("td", fmt::format("{:.1f} %", 100 * seconds / table.step_s)),
                        Element("td", fmt::format("{:.4g}", seconds)), Element("td", why));
  };
  const auto count = static_cast<double>(table.ranks.size());
  double compute_s = 0, update_s = 0;
  for (const RankIdle& rank : table.ranks) {
    compute_s += rank.compute_s / count;
    update_s += rank.update_s / count;
  }
  add(kComputing, "computing", compute_s, "forward and backward passes");
  add(kUpdating, "optimizer", update_s, "gradient norm and AdamW");
  for (const IdleCause cause : diagnosis.causes)
    add(kColours[static_cast<size_t>(cause)], ToString(cause), table.Total(cause),
        Explain(cause, table));
  return "<div class=\"card scroll\"><table>\n" + rows + "</table></div>\n";
}

std::string Remedies(const Diagnosis& diagnosis) {
  if (diagnosis.remedies.empty())
    return "<p class=\"soft\">None saves half a percent of a step.</p>\n";
  std::string rows = "<tr><th>remedy</th><th>saves</th><th>to paste, or to do</th></tr>\n";
  for (const Remedy& remedy : diagnosis.remedies) {
    const std::string saves =
        fmt::format("{}{:.1f} %", remedy.at_most ? "at most " : "", 100 * remedy.gain);
    rows += fmt::format(
        "<tr>{}{}<td>{}{}</td></tr>\n", Element("td", remedy.name), Element("td", saves),
        remedy.setting.empty() ? "" : Element("pre", remedy.setting), EscapeHtml(remedy.advice));
  }
  return "<div class=\"card scroll\"><table>\n" + rows + "</table></div>\n";
}

}  // namespace

std::string RenderDiagnosis(const Diagnosis& diagnosis) {
  const std::string title = "Idle time of " + diagnosis.subject;
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "{}\n<style>{}</style>\n</head>\n<body>\n<main>\n{}\n",
      Element("title", title), ReportStyle(), Element("h1", title));
  if (!diagnosis.plan.empty()) page += Element("p", diagnosis.plan) + "\n";
  page += fmt::format("<p class=\"soft\">{}. A step takes {:.4g} s.</p>\n",
                      EscapeHtml(diagnosis.basis), diagnosis.table.step_s);
  page += Element("h2", "A step on each rank") + "\n" + Bars(diagnosis);
  page += Element("h2", "Causes") + "\n" + Causes(diagnosis);
  page += Element("h2", "Remedies") + "\n" + Remedies(diagnosis);
  for (const std::string& note : diagnosis.notes)
    page += fmt::format("<p class=\"soft\">{}</p>\n", EscapeHtml(note));
  return page + "</main>\n</body>\n</html>\n";
}

}  // namespace equipoise
