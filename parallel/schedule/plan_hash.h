#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace equipoise {

// Every rank works out the plan of a step for itself, so all have to come to the same one. They
// compare 64 bits before each step; only where these differ do they exchange the items behind them,
// which say what differs. Nothing here communicates: that is the caller's.

// A hash that is the same on every machine and in every build. What is added keeps its bounds:
// "ab", "c" is not "a", "bc".
class StableHash {
 public:
  void Add(uint64_t value);
  void Add(std::string_view text);
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0;
};

// One thing that all ranks have to agree on. Neither text holds a tab or a line break.
struct PlanItem {
  std::string name;   // "schedule of data rank 1, pipeline rank 2, op 7"
  std::string value;  // "1B0"

  bool operator==(const PlanItem&) const = default;
};

// A schedule's items: micro-batches, stages, the work of each stage and micro-batch, ops. `whose`
// begins the names: "schedule of data rank 1".
std::vector<PlanItem> PlanItems(const Schedule& schedule, const std::string& whose);
// The same content without making the texts: two schedules add the same if and only if their items
// are the same.
void AddTo(StableHash& hash, const Schedule& schedule);

// One line an item, to be sent to other ranks, and back.
std::string ToText(const std::vector<PlanItem>& items);
std::vector<PlanItem> ParsePlanItems(std::string_view text);

// From each rank's hash: two ranks that differ, the lower first, one of which has the hash that
// most ranks have. None when all agree.
std::optional<std::pair<int, int>> DifferingRanks(const std::vector<uint64_t>& hashes);

// "rank 0 and rank 3 differ first in 'schedule of data rank 1, pipeline rank 2, op 7': 1B0 / 1F1";
// "nothing" stands for an item that one of them lacks. Takes the items of each of `ranks`; none
// when all agree.
std::optional<std::string> DescribeDifference(const std::vector<std::vector<PlanItem>>& items,
                                              const std::vector<int>& ranks);

}  // namespace equipoise
