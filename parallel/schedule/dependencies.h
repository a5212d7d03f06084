#pragma once

#include <span>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace equipoise {

// The dependency rules, in one place for validator, simulator and executor: for every op the ops
// whose results it takes, beside the order of its own rank's list:
//   F, V   the F or V of each stage before it that sends rows
//   B, I, U  its own F or V, and the B, I or U of each stage after it that it sends rows to (where
//          that stage makes an input gradient)
//   W      its own I
//   S      the op that makes what it sends;   R  the matching S
//   REDUCE all B, W and U of its stage;       OPT  all REDUCE of its rank
// Where a value crosses ranks and the schedule has the transfer, the taking op waits for its R;
// where the schedule has no transfers yet, for the making op itself. An op that is missing from the
// lists is left out here: completeness is the validator's.
//
// Ops are numbered through, rank by rank, and their edges lie in two flat arrays: a step of 64
// ranks and 512 micro-batches has nearly a million ops.
class Dependencies {
 public:
  // Does not keep the schedule.
  explicit Dependencies(const Schedule& schedule);

  int num_ops() const { return rank_first_.back(); }
  int Number(const OpPlace& place) const { return rank_first_[place.rank] + place.position; }
  // The number of a rank's first op; of the op after its last for rank + 1.
  int First(int rank) const { return rank_first_[rank]; }
  OpPlace PlaceOf(int number) const { return places_[number]; }

  // Numbers of the ops whose results an op takes, and of those that take its result.
  std::span<const int> ProducersOf(int number) const {
    return Slice(maker_first_, makers_, number);
  }
  std::span<const int> ConsumersOf(int number) const {
    return Slice(taker_first_, takers_, number);
  }

 private:
  static std::span<const int> Slice(const std::vector<int>& first, const std::vector<int>& all,
                                    int number) {
    return {all.data() + first[number], all.data() + first[number + 1]};
  }
  void LinkTakers();

  std::vector<int> rank_first_;   // [rank]
  std::vector<OpPlace> places_;   // [op]
  std::vector<int> maker_first_;  // [op] its first entry in makers_
  std::vector<int> makers_;
  std::vector<int> taker_first_, takers_;  // likewise
};

}  // namespace equipoise
