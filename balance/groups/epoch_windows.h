#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "balance/groups/group_plan.h"

namespace equipoise {

// The groups of an epoch, formed from a bounded part of its samples at a time: the streaming form
// of every method of balance.group. Samples come in an order drawn from (seed, epoch) (balance/
// permutation.h); a window holds the next ones and those that the window before has handed on,
// whose groups were not full. A step may begin in one window and end in the next. Deterministic;
// memory grows with the window, not with the epoch.
class EpochWindows {
 public:
  struct Options {
    int64_t window = 0;  // samples; 0, or as many as the epoch has: all at once
    int64_t epoch = 0;
    int64_t head = 0;  // groups at the beginning that complete a step of the epoch before
  };
  // REQUIRES: limits of `groups` are chosen; global_batch > 0.
  EpochWindows(SampleList samples, const GroupOptions& groups, const Options& options);

  // Forms the next window's groups; false at the end of the epoch.
  bool Next();
  // Groups of the window, in places() of the window.
  const EpochGroups& groups() const { return groups_; }
  // Places in the epoch's list of samples.
  const std::vector<int64_t>& places() const { return places_; }
  // Groups of the epoch before and behind the window so far.
  int64_t begin() const { return begin_; }
  int64_t end() const { return begin_ + groups_.size(); }
  const GroupOptions& options() const { return options_; }

 private:
  std::vector<SampleSize> Gather();

  SampleList samples_;
  GroupOptions options_;
  Options stream_;
  int64_t next_ = 0;  // place in the drawn order
  int64_t number_ = 0, begin_ = 0;
  bool last_ = false;
  std::vector<int64_t> places_;
  EpochGroups groups_;
};

// Counts and balance of the groups of an epoch.
struct EpochSummary {
  int64_t groups = 0, samples = 0;
  int64_t oversize = 0;  // samples that exceed the limits and are in no group
  BalanceMetrics balance;

  double samples_per_group() const {
    return static_cast<double>(samples) / static_cast<double>(groups);
  }
};

// Forms all windows that are left; `each` is called after every one and may be empty.
EpochSummary SummarizeEpoch(EpochWindows windows, int64_t data_ranks,
                            const std::function<void(const EpochWindows&)>& each = {});

}  // namespace equipoise
