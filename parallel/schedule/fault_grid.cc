#include "parallel/schedule/fault_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "configs/base/error.h"

namespace equipoise {

ScheduleFault FaultAt(const Schedule& schedule, const OpPlace& place, const std::string& message) {
  const std::vector<Op>& list = schedule.ranks[place.rank];
  const bool inside = place.position < static_cast<int>(list.size());
  const std::string what =
      inside ? fmt::format("op {} ({})", place.position, ToString(list[place.position]))
             : std::string("end");
  return {place, fmt::format("rank {}, {}: {}", place.rank, what, message)};
}

std::string GridAround(const Schedule& schedule, const OpPlace& place) {
  constexpr int kAround = 3;
  const int ranks = static_cast<int>(schedule.ranks.size());
  const int first_rank = std::max(0, std::min(place.rank - kAround, ranks - 2 * kAround - 1));
  const int last_rank = std::min(ranks - 1, first_rank + 2 * kAround);
  const int first = std::max(0, place.position - kAround);

  std::vector<std::string> lines = {"  op "};
  for (int p = first; p <= place.position + kAround; ++p) {
    lines.push_back(fmt::format("{:>4} ", p));
  }
  for (int r = first_rank; r <= last_rank; ++r) {
    const std::vector<Op>& list = schedule.ranks[r];
    std::vector<std::string> cells = {fmt::format(" rank {}", r)};
    for (int p = first; p <= place.position + kAround; ++p) {
      const bool inside = p < static_cast<int>(list.size());
      const std::string text = inside ? ToString(list[p]) : "";
      const bool marked = place == OpPlace{r, p};
      cells.push_back(marked ? fmt::format(">{}<", text) : " " + text);
    }
    size_t width = 0;
    for (const std::string& cell : cells) width = std::max(width, cell.size());
    for (size_t i = 0; i < cells.size(); ++i) {
      lines[i] += fmt::format("  {:<{}}", cells[i], width);
    }
  }
  std::string out;
  for (std::string& line : lines) {
    line.erase(line.find_last_not_of(' ') + 1);
    if (line.find_first_not_of(" 0123456789") != std::string::npos) out += line + "\n";
  }
  out.pop_back();
  return out;
}

}  // namespace equipoise
