#include "trainer/outputs/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

#include "data/text/thoughts.h"
#include "trainer/outputs/html_text.h"
#include "trainer/outputs/progress.h"
#include "trainer/outputs/report_chart.h"
#include "trainer/outputs/report_style.h"

namespace equipoise {
namespace {

constexpr size_t kMostRows = 200;
constexpr size_t kMostRanks = 64;

std::string Element(std::string_view tag, std::string_view text) {
  return fmt::format("<{0}>{1}</{0}>", tag, EscapeHtml(text));
}

// A value of each step for which it is known.
template <class Get>
Series Curve(const ReportInput& input, const std::string& name, bool smooth, Get&& get) {
  Series series{name, {}, smooth};
  for (const StepMetrics& metrics : input.steps) {
    const std::optional<double> value = get(metrics);
    if (value) series.points.emplace_back(static_cast<double>(metrics.step), *value);
  }
  return series;
}

std::optional<double> WaitPercent(const StepMetrics& m) {
  if (!m.data_wait_s || !m.step_s || *m.step_s <= 0) return std::nullopt;
  return 100.0 * *m.data_wait_s / *m.step_s;
}

// A chart for each set of questions that were answered during training.
std::string AnswerCurves(const ReportInput& input) {
  std::map<std::string, std::map<std::string, Series>> sets;
  for (const StepMetrics& metrics : input.steps) {
    for (const auto& [set, scores] : metrics.answers) {
      for (const auto& [measure, value] : scores) {
        Series& series = sets[set][measure];
        series.name = measure;
        series.points.emplace_back(static_cast<double>(metrics.step), value);
      }
    }
  }
  std::string out;
  for (const auto& [set, measures] : sets) {
    Chart chart{"Answers to " + set, "", {}};
    for (const auto& [measure, series] : measures) chart.series.push_back(series);
    out += RenderChart(chart);
  }
  return out;
}

// "normalized 0.61, anls 0.72"; without exact, which the title has.
std::string ScoresText(const ReportAnswers& source) {
  std::string text;
  for (const auto& [measure, value] : source.scores) {
    if (measure != "exact")
      text +=
          fmt::format("{}{} {}", text.empty() ? " Means: " : ", ", measure, ReadableNumber(value));
  }
  return text.empty() ? "" : text + ".";
}

std::string Curves(const ReportInput& input) {
  const auto curve = [&](const char* name, bool smooth, auto field) {
    return Curve(input, name, smooth, [field](const StepMetrics& m) { return m.*field; });
  };
  const std::vector<Chart> charts = {
      {"Loss",
       "",
       {curve("training", true, &StepMetrics::loss),
        curve("held-out", false, &StepMetrics::eval_loss)},
       /*logarithmic=*/true},
      {"Learning rate", "", {curve("last", false, &StepMetrics::lr)}},
      {"Gradient norm", "", {curve("last", true, &StepMetrics::grad_norm)}, /*logarithmic=*/true},
      {"Tokens per second", "", {curve("last", true, &StepMetrics::tokens_per_s)}},
      {"Waiting for data", " %", {Curve(input, "last", true, WaitPercent)}},
      {"Step time",
       " s",
       {curve("measured", true, &StepMetrics::step_s),
        curve("predicted", false, &StepMetrics::predicted_step_s)}},
  };
  std::string out;
  for (const Chart& chart : charts) out += RenderChart(chart);
  out += AnswerCurves(input);
  if (out.empty()) return "";
  return fmt::format("<h2>Curves over steps</h2>\n<div class=\"grid-of\">\n{}</div>\n", out);
}

// Explanations of the first figures.
constexpr std::string_view kLossMeaning =
    "Loss: how surprised the model is by a trained token, as mean negative log-likelihood in nats; "
    "near 0 it knows the training data by heart.";
constexpr std::string_view kHeldOutMeaning =
    " Held-out loss: the same on data.eval, which is never trained on. It falls for what can be "
    "concluded from the training data. An answer that occurs nowhere in that data, such as the "
    "name of a thing that was never shown, cannot be known: there this loss rises as the model "
    "grows surer of the answers that it has seen.";

std::string_view ShortRole(AnswerRole role) {
  switch (role) {
    case AnswerRole::kTrained:
      return "training data";
    case AnswerRole::kHeldOut:
      return "held out";
    case AnswerRole::kControl:
      return "control";
    case AnswerRole::kOther:
      break;
  }
  return "other data";
}

// What the answers to a source's questions show about the model.
std::string_view RoleMeaning(AnswerRole role) {
  switch (role) {
    case AnswerRole::kTrained:
      return "Questions of the training data: shows what has been memorized.";
    case AnswerRole::kHeldOut:
      return "Held out (data.eval): these records were never trained on.";
    case AnswerRole::kControl:
      return "Control: questions of the training data with other answers, which were never "
             "trained. "
             "A model that looks at the pictures gives none of these; the fewer exact answers the "
             "better.";
    case AnswerRole::kOther:
      break;
  }
  return "Neither in data.train nor in data.eval.";
}

std::string ExactText(const ReportAnswers& source) {
  return fmt::format("{} of {}", ReadableNumber(static_cast<double>(source.exact)),
                     ReadableNumber(static_cast<double>(source.total)));
}

std::string Tile(const std::string& name, const std::string& value) {
  return fmt::format("<div>{}{}</div>", Element("dt", name), Element("dd", value));
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string Tiles(const ReportInput& input) {
  if (input.steps.empty()) return "<p class=\"soft\">No step was taken.</p>\n";
  const StepMetrics& last = input.steps.back();
  std::string out = Tile("steps", ReadableNumber(static_cast<double>(last.step)));
  if (last.loss) out += Tile("training loss, last step", ReadableNumber(*last.loss));
  double seconds = 0, tokens = 0;
  std::vector<double> rates;
  std::optional<double> eval_loss;
  for (const StepMetrics& m : input.steps) {
    seconds += m.step_s.value_or(0);
    tokens += static_cast<double>(m.tokens.value_or(0));
    if (m.tokens_per_s) rates.push_back(*m.tokens_per_s);
    if (m.eval_loss) eval_loss = m.eval_loss;
  }
  if (eval_loss) out += Tile("held-out loss, last", ReadableNumber(*eval_loss));
  for (const ReportAnswers& source : input.answers) {
    if (source.total == 0) continue;
    out += Tile(fmt::format("exact answers, {}", ShortRole(source.role)), ExactText(source));
  }
  if (tokens > 0) out += Tile("tokens", ReadableNumber(tokens));
  if (!rates.empty()) out += Tile("tokens/s (median)", ReadableNumber(Median(rates)));
  if (seconds > 0) out += Tile("time in steps", DurationText(seconds));
  if (last.rss_peak_bytes) {
    const double mib = static_cast<double>(*last.rss_peak_bytes) / (1 << 20);
    out += Tile("peak memory (RSS)", ReadableNumber(std::round(mib)) + " MiB");
  }
  const auto skipped = static_cast<double>(last.skipped_samples.value_or(0));
  out += Tile("skipped samples", ReadableNumber(skipped));
  return fmt::format("<dl class=\"tiles\">{}</dl>\n<p class=\"soft\">{}{}</p>\n", out, kLossMeaning,
                     eval_loss ? kHeldOutMeaning : "");
}

// An answer; with `judged` green if it equals the reference, else red.
std::string Answer(const std::string& name, const std::string& answer, const std::string& reference,
                   bool judged) {
  if (answer.empty()) return "";
  if (!judged) return Element("dt", name) + Element("dd", answer);
  const bool right = BehindThought(answer) == WithoutThought(reference);
  return fmt::format("{}<dd class=\"{}\">{}</dd>", Element("dt", name), right ? "good" : "bad",
                     EscapeHtml(answer));
}

// Removes placeholders of pictures, as the picture is shown above the question.
std::string WithoutPlaceholders(std::string text) {
  constexpr std::string_view kPlaceholder = "<image>\n";
  for (size_t at; (at = text.find(kPlaceholder)) != std::string::npos;) {
    text.erase(at, kPlaceholder.size());
  }
  return text;
}

std::string Card(const ReportCaption& caption, AnswerRole role) {
  std::string out = "<div class=\"card\">";
  if (!caption.picture.empty()) {
    out += fmt::format("<img alt=\"{}\" src=\"{}\">", EscapeHtml(caption.question),
                       EscapeHtml(caption.picture));
  }
  out += "<dl>";
  if (!caption.question.empty()) {
    out += Element("dt", "question") + Element("dd", WithoutPlaceholders(caption.question));
  }
  const bool judged = role != AnswerRole::kControl;
  out += Element("dt", judged ? "reference" : "the control's answer (never trained)") +
         Element("dd", caption.reference) +
         Answer("before training", caption.before, caption.reference, judged) +
         Answer("after training", caption.after, caption.reference, judged);
  return out + "</dl></div>\n";
}

std::string Answers(const ReportInput& input) {
  if (input.answers.empty()) return "";
  std::string out = "<h2>Pictures and answers</h2>\n";
  for (const ReportAnswers& source : input.answers) {
    out += fmt::format("{}\n<p class=\"soft\">{}{}</p>\n<div class=\"grid-of pictures\">\n",
                       Element("h3", fmt::format("{}: {} exact", source.source, ExactText(source))),
                       RoleMeaning(source.role), ScoresText(source));
    for (const ReportCaption& caption : source.shown) out += Card(caption, source.role);
    out += "</div>\n";
  }
  return out;
}

// A row of a table.
std::string Row(const std::vector<std::string>& cells) {
  std::string out = "<tr>";
  for (const std::string& cell : cells) out += Element("td", cell);
  return out + "</tr>\n";
}

std::string MiBText(int64_t bytes) {
  return bytes > 0 ? ReadableNumber(std::round(static_cast<double>(bytes) / (1 << 20))) : "-";
}

std::string Memory(const ReportInput& input) {
  if (input.ranks.empty()) return "";
  std::string out =
      "<h2>Memory by rank, MiB</h2>\n<div class=\"card scroll\"><table class=\"numbers\">\n<tr>"
      "<th>rank</th><th>tensors, forecast</th><th>tensors, peak</th><th>process, peak</th>"
      "<th>device</th><th>machine</th></tr>\n";
  for (size_t i = 0; i < input.ranks.size() && i < kMostRanks; ++i) {
    const RankMemory& rank = input.ranks[i];
    out += Row({std::to_string(i), MiBText(rank.forecast_bytes), MiBText(rank.tensor_bytes),
                MiBText(rank.rss_bytes), rank.device, rank.machine});
  }
  out += "</table></div>\n";
  if (input.ranks.size() > kMostRanks) {
    out +=
        fmt::format("<p class=\"soft\">and {} more ranks</p>\n", input.ranks.size() - kMostRanks);
  }
  return out +
         "<p class=\"soft\">Forecast: of the epoch's worst step, before the first one. Process: "
         "libraries, loaded data and what the allocator keeps included.</p>\n";
}

std::string Facts(const ReportInput& input) {
  if (input.facts.empty()) return "";
  std::string out = "<h2>The run</h2>\n<div class=\"card scroll\"><table>\n";
  for (const auto& [name, value] : input.facts) {
    out += fmt::format("<tr>{}{}</tr>\n", Element("th", name), Element("td", value));
  }
  return out + "</table></div>\n";
}

std::string Quarantine(const ReportInput& input) {
  std::string out = "<h2>Records in quarantine</h2>\n";
  if (input.quarantine.empty()) return out + "<p class=\"soft\">None.</p>\n";
  out +=
      "<div class=\"card scroll\"><table>\n<tr><th>file</th><th>line</th><th>id</th>"
      "<th>reason</th></tr>\n";
  for (size_t i = 0; i < input.quarantine.size() && i < kMostRows; ++i) {
    const QuarantineRow& row = input.quarantine[i];
    out += Row({row.file, std::to_string(row.line), row.id, row.reason});
  }
  out += "</table></div>\n";
  if (input.quarantine.size() > kMostRows) {
    out += fmt::format("<p class=\"soft\">and {} more in quarantine.jsonl</p>\n",
                       input.quarantine.size() - kMostRows);
  }
  return out;
}

std::string Configuration(const ReportInput& input) {
  if (input.config.empty()) return "";
  return fmt::format(
      "<h2>Configuration</h2>\n<div class=\"card\"><details><summary>config.yaml</summary>{}"
      "</details></div>\n",
      Element("pre", input.config));
}

}  // namespace

std::string RenderReport(const ReportInput& input) {
  const std::string head = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "{}\n<style>{}</style>\n</head>\n",
      Element("title", input.title), ReportStyle());
  const std::string lead = fmt::format("{}\n<p class=\"soft\">{}</p>\n", Element("h1", input.title),
                                       EscapeHtml(input.lead));
  return head + "<body>\n<main>\n" + lead + Tiles(input) + Curves(input) + Answers(input) +
         Facts(input) + Memory(input) + Quarantine(input) + Configuration(input) +
         "</main>\n</body>\n</html>\n";
}

}  // namespace equipoise
