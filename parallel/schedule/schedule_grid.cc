#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "parallel/schedule/schedule_text.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {
namespace {

constexpr int kColumnsAround = 8;  // shown on each side of the marked op

struct Cell {
  std::string label;
  int start = 0, end = 0;  // columns
};

// The op to mark in the picture, which shows compute ops only.
OpPlace Drawn(const Schedule& schedule, const OpPlace& marked) {
  OpPlace drawn{marked.rank, -1};
  const std::vector<Op>& list = schedule.ranks[marked.rank];
  for (int i = 0; i < static_cast<int>(list.size()); ++i) {
    if (!IsCompute(list[i].kind)) continue;
    drawn.position = i;
    if (i >= marked.position) break;
  }
  return drawn;
}

std::vector<std::vector<Cell>> Cells(const Schedule& schedule, const OpPlace& marked) {
  const Simulation simulation = Simulate(schedule, {});
  std::vector<std::vector<Cell>> cells(schedule.ranks.size());
  for (size_t r = 0; r < schedule.ranks.size(); ++r) {
    for (size_t i = 0; i < schedule.ranks[r].size(); ++i) {
      const Op& op = schedule.ranks[r][i];
      if (!IsCompute(op.kind)) continue;
      std::string label = ToString(op);
      if (marked == OpPlace{static_cast<int>(r), static_cast<int>(i)})
        label.insert(0, ">").push_back('<');
      cells[r].push_back({label, static_cast<int>(std::lround(simulation.start_s[r][i])),
                          static_cast<int>(std::lround(simulation.end_s[r][i]))});
    }
  }
  return cells;
}

// One rank's cells; a column is `width` characters wide, the last of them a space.
std::string Draw(const std::vector<Cell>& cells, int columns, int width) {
  std::string idle(width, ' ');
  idle[(width - 1) / 2] = '.';
  std::string line;
  for (int i = 0; i < columns; ++i) line += idle;
  for (const Cell& cell : cells) {
    std::string text = cell.label;
    text.resize((cell.end - cell.start) * width - 1, '-');
    line.replace(cell.start * width, text.size() + 1, text + " ");
  }
  return line;
}

std::string Grid(const Schedule& schedule, const OpPlace& marked) {
  const auto cells = Cells(schedule, marked);
  int columns = 0, width = 0, first = 0, last = 0;
  for (const auto& rank : cells) {
    for (const Cell& cell : rank) {
      columns = std::max(columns, cell.end);
      width = std::max(width, static_cast<int>(cell.label.size()) + 1);
      if (cell.label.front() == '>') first = cell.start - kColumnsAround;
      if (cell.label.front() == '>') last = cell.end + kColumnsAround;
    }
  }
  if (last == 0) last = columns;
  first = std::max(first, 0);
  last = std::min(last, columns);
  const size_t digits = fmt::formatted_size("{}", cells.size() - 1);
  std::string grid;
  for (size_t rank = 0; rank < cells.size(); ++rank) {
    std::string line = fmt::format("rank {:>{}} | ", rank, digits);
    if (first > 0) line += "... ";
    line += Draw(cells[rank], columns, width).substr(first * width, (last - first) * width);
    if (last < columns) line += "...";
    line.erase(line.find_last_not_of(' ') + 1);
    grid += line + "\n";
  }
  return grid;
}

}  // namespace

std::string ToGrid(const Schedule& schedule) { return Grid(schedule, {-1, -1}); }

std::string ToGrid(const Schedule& schedule, const OpPlace& marked) {
  return Grid(schedule, Drawn(schedule, marked));
}

}  // namespace equipoise
