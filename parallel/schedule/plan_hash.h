#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace equipoise {

// Agreement of ranks on the plan of a step. Every rank derives the plan for itself; before each
// step the ranks compare 64-bit hashes, and only where these differ exchange the items behind them,
// to name the first that differs. Nothing here communicates (pipeline/plan_agreement.h does).

// A hash that is the same on every machine and in every build. Added values keep their bounds:
// "ab", "c" hashes unlike "a", "bc".
class StableHash {
 public:
  void Add(uint64_t value);
  void Add(std::string_view text);
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0;
};

// One item that all ranks have to agree on. Neither text holds a tab or a line break.
struct PlanItem {
  std::string name;   // "schedule of data rank 1, pipeline rank 2, op 7"
  std::string value;  // "1B0"

  bool operator==(const PlanItem&) const = default;
};

// The items of a schedule: micro-batches, stages, the work of each stage and micro-batch, ops.
// `whose` begins their names: "schedule of data rank 1".
std::vector<PlanItem> PlanItems(const Schedule& schedule, const std::string& whose);
// Adds a schedule to a hash without building the texts: two schedules add the same values if and
// only if their items are equal.
void AddTo(StableHash& hash, const Schedule& schedule);

// Items as text, one line each, to be sent to other ranks; and back.
std::string ToText(const std::vector<PlanItem>& items);
std::vector<PlanItem> ParsePlanItems(std::string_view text);

// Two ranks whose hashes differ, the lower first; one of them has the hash that most ranks have.
// `hashes` [rank]. Nullopt when all agree.
std::optional<std::pair<int, int>> DifferingRanks(const std::vector<uint64_t>& hashes);

// A line such as "rank 0 and rank 3 differ first in 'schedule of data rank 1, pipeline rank 2, op
// 7': 1B0 / 1F1"; "nothing" stands for an item that one of them lacks. `items` [i] are those of
// rank `ranks` [i]. Nullopt when all agree.
std::optional<std::string> DescribeDifference(const std::vector<std::vector<PlanItem>>& items,
                                              const std::vector<int>& ranks);

}  // namespace equipoise
