#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <sstream>

#include "trainer/doctor/diagnosis.h"

namespace equipoise {
namespace {

constexpr size_t kShownRanks = 8;  // with a column each; of more, the extremes

double Percent(double seconds, const IdleTable& table) {
  return table.step_s > 0 ? 100 * seconds / table.step_s : 0;
}

// Seconds of a row of the table on each rank.
std::vector<double> OfRanks(const IdleTable& table, IdleCause cause) {
  std::vector<double> seconds;
  seconds.reserve(table.ranks.size());
  for (const RankIdle& rank : table.ranks) seconds.push_back(rank[cause]);
  return seconds;
}

std::string Row(const std::string& name, const std::vector<double>& seconds,
                const IdleTable& table) {
  double mean = 0;
  for (const double each : seconds) mean += each / static_cast<double>(seconds.size());
  std::string row = fmt::format("{:<22} {:5.1f} % {:10.4g} s ", name, Percent(mean, table), mean);
  if (seconds.size() <= kShownRanks) {
    for (const double each : seconds) row += fmt::format(" {:9.4g}", each);
    return row + "\n";
  }
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  return row + fmt::format(" {:9.4g} (rank {}) to {:.4g} (rank {})\n", *least,
                           least - seconds.begin(), *most, most - seconds.begin());
}

void PrintTable(const Diagnosis& diagnosis, std::ostream& out) {
  const IdleTable& table = diagnosis.table;
  out << fmt::format("\n{:<22} {:>7} {:>12} ", "where the time goes", "share", "of a step");
  if (table.ranks.size() <= kShownRanks) {
    for (size_t rank = 0; rank < table.ranks.size(); ++rank)
      out << fmt::format(" {:>9}", fmt::format("rank {}", rank));
  } else {
    out << "  of the ranks";
  }
  out << "\n";
  std::vector<double> compute, update;
  for (const RankIdle& rank : table.ranks) {
    compute.push_back(rank.compute_s);
    update.push_back(rank.update_s);
  }
  out << Row("computing", compute, table) << Row("optimizer", update, table);
  for (const IdleCause cause : diagnosis.causes)
    out << Row(ToString(cause), OfRanks(table, cause), table);
}

void PrintRemedies(const Diagnosis& diagnosis, std::ostream& out) {
  if (diagnosis.remedies.empty()) {
    out << "\nno remedy saves half a percent of a step\n";
    return;
  }
  out << "\nremedy                            saves            to paste, or to do\n";
  for (const Remedy& remedy : diagnosis.remedies) {
    const std::string saves =
        fmt::format("{}{:.1f} %", remedy.at_most ? "at most " : "", 100 * remedy.gain);
    std::string text = remedy.setting;
    if (!remedy.advice.empty()) text += (text.empty() ? "" : "\n") + remedy.advice;
    std::istringstream lines(text);
    std::string line, name = remedy.name, gain = saves;
    while (std::getline(lines, line)) {
      out << fmt::format("{:<33} {:<16} {}\n", name, gain, line);
      name = gain = "";
    }
  }
}

}  // namespace

void PrintDiagnosis(const Diagnosis& diagnosis, std::ostream& out) {
  const IdleTable& table = diagnosis.table;
  double idle = 0;
  for (const RankIdle& rank : table.ranks)
    idle += rank.idle() / static_cast<double>(table.ranks.size());
  out << "subject  " << diagnosis.subject << "\n";
  if (!diagnosis.plan.empty()) out << "plan     " << diagnosis.plan << "\n";
  out << "basis    " << diagnosis.basis << "\n"
      << fmt::format("step     {:.4g} s, of which a rank is idle {:.1f} % on average\n",
                     table.step_s, Percent(idle, table));
  if (!diagnosis.causes.empty()) {
    const IdleCause first = diagnosis.causes.front();
    out << fmt::format("first    {}, {:.1f} % of a step: {}\n", ToString(first),
                       Percent(table.Total(first), table), Explain(first, table));
  }
  PrintTable(diagnosis, out);
  PrintRemedies(diagnosis, out);
  for (const std::string& note : diagnosis.notes) out << "note: " << note << "\n";
}

}  // namespace equipoise
