#include "trainer/outputs/report_facts.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <map>
#include <optional>

#include "trainer/outputs/html_text.h"
#include "trainer/outputs/progress.h"

namespace equipoise {
namespace {

std::string Count(int64_t value) { return ReadableNumber(static_cast<double>(value)); }

std::string Quoted(const std::string& word) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Mean over the steps for which the value is known.
std::optional<double> Mean(const std::vector<StepMetrics>& steps,
                           std::optional<double> StepMetrics::*field) {
  double sum = 0;
  int64_t known = 0;
  for (const StepMetrics& step : steps) {
    if (!(step.*field)) continue;
    sum += *(step.*field);
    ++known;
  }
  return known > 0 ? std::optional(sum / static_cast<double>(known)) : std::nullopt;
}

std::string Percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f} %", 100 * *share) : "-";
}

// The number of ranks by device and machine, such as "2 ranks on vm (AMD EPYC)".
std::string Machines(const std::vector<RankMemory>& ranks) {
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const RankMemory& rank : ranks) ++counts[{rank.device, rank.machine}];
  std::string out;
  for (const auto& [where, count] : counts) {
    out += fmt::format("{}{} on {} ({})", out.empty() ? "" : "; ",
                       count == 1 ? "1 rank" : fmt::format("{} ranks", count), where.second,
                       where.first);
  }
  return out;
}

}  // namespace

std::string UtcText(std::time_t time) {
  std::tm parts{};
  gmtime_r(&time, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min);
}

std::string CommandLine() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string out;
  for (std::string word; std::getline(file, word, '\0');) {
    out += (out.empty() ? "" : " ") + Quoted(word);
  }
  return out;
}

std::string RunLead(const RunSummary& run) {
  return fmt::format("{} · {} · {}{}", run.finished, Machines(run.ranks), DurationText(run.wall_s),
                     run.first_step > 0
                         ? fmt::format(" since the restart at step {}", Count(run.first_step))
                         : "");
}

std::vector<std::pair<std::string, std::string>> RunFacts(const RunSummary& run,
                                                          const std::vector<StepMetrics>& steps) {
  const std::optional<double> mfu = Mean(steps, &StepMetrics::mfu);
  std::vector<std::pair<std::string, std::string>> facts = {
      {"command of each rank", run.command},
      {"finished", run.finished},
      {"wall time of this start",
       DurationText(run.wall_s) +
           (run.first_step > 0 ? fmt::format(", from step {} on", Count(run.first_step + 1)) : "")},
      {"machine", Machines(run.ranks)},
      {"threads of a rank", Count(run.threads)},
      {"precision", run.precision},
      {"parameters", Count(run.parameters)},
      {"plan", run.plan},
      {"micro-batches of a data rank in a step", Count(run.micro_batches)},
      {"predicted step", run.predicted_step_s > 0 ? ReadableNumber(run.predicted_step_s) + " s"
                                                  : "- (cluster.profile gives the speed)"},
      {"model FLOPs utilization (MFU)",
       mfu ? Percent(mfu) : "- (cluster.peak_tflops gives the peak)"},
      {"padding among the computed tokens (pad)", Percent(Mean(steps, &StepMetrics::pad_ratio))},
      {"share of the packs' room that tokens fill", Percent(Mean(steps, &StepMetrics::fill_share))},
      {"share of tiles that data ranks wait for (dist)",
       Percent(Mean(steps, &StepMetrics::dist_ratio_vision))},
      {"share of tokens that data ranks wait for (dist)",
       Percent(Mean(steps, &StepMetrics::dist_ratio_text))},
      {"idle share of pipeline ranks (bubble)", Percent(Mean(steps, &StepMetrics::bubble_share))},
      {"steps", Count(steps.empty() ? 0 : steps.back().step)},
      {"tokens", Count(run.tokens)},
      {"samples", Count(run.samples)},
      {"pictures", Count(run.images)},
      {"records left out", Count(run.left_out)},
      {"bad samples met while training", Count(run.skipped)}};
  std::erase_if(facts, [](const auto& fact) { return fact.second == "-"; });
  return facts;
}

}  // namespace equipoise
