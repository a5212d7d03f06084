#pragma once

#include <span>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace equipoise {

// The data dependencies of a schedule's ops, in one place for validator, simulator and passes. The
// producers of an op, besides the op before it in its rank's list:
//   F, V   the F or V of each stage before it that sends rows, and its GATHER
//   B, I, U  its own F or V, and the B, I or U of each stage after it that it sends rows to (where
//          that stage makes an input gradient), and its GATHER
//   W      its own I
//   S      the op that makes what it sends;   R  the matching S
//   REDUCE all B, W and U of its stage, of this step's micro-batches
//   OPT    all REDUCE of its rank
//   GATHER nothing;                           FREE the pass that it ends
// Where a value crosses ranks and the schedule has the transfer, the consumer waits for its R;
// where the schedule has no transfers yet, for the producer itself. An op that is missing from the
// lists is left out here, as is one that ran in the step before: completeness is the
// validator's.
//
// Ops are numbered consecutively, rank by rank, and their edges lie in two flat arrays: a step of
// 64 ranks and 512 micro-batches has nearly a million ops. Construction is O(ops + edges).
class Dependencies {
 public:
  // The schedule need not outlive it.
  explicit Dependencies(const Schedule& schedule);

  int num_ops() const { return rank_first_.back(); }
  int Number(const OpPlace& place) const { return rank_first_[place.rank] + place.position; }
  // The number of a rank's first op. First(rank + 1) is one past its last.
  int First(int rank) const { return rank_first_[rank]; }
  OpPlace PlaceOf(int number) const { return places_[number]; }

  // Numbers of the ops whose results an op takes, and of the ops that take its result.
  std::span<const int> ProducersOf(int number) const {
    return Slice(producer_first_, producers_, number);
  }
  std::span<const int> ConsumersOf(int number) const {
    return Slice(consumer_first_, consumers_, number);
  }

 private:
  static std::span<const int> Slice(const std::vector<int>& first, const std::vector<int>& all,
                                    int number) {
    return {all.data() + first[number], all.data() + first[number + 1]};
  }
  void LinkConsumers();

  std::vector<int> rank_first_;      // [rank]
  std::vector<OpPlace> places_;      // [op]
  std::vector<int> producer_first_;  // [op] its first entry in producers_
  std::vector<int> producers_;
  std::vector<int> consumer_first_, consumers_;  // likewise
};

}  // namespace equipoise
