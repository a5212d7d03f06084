#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "balance/groups/group_plan.h"

namespace equipoise {

// The groups of an epoch, formed from one window of its samples at a time: the streaming form of
// every method of balance.group. Samples are in a random order by (seed, epoch) (balance/load/
// permutation.h). A window holds the next samples and those carried over from groups of the
// previous window that were not full. A step may begin in one window and end in the next.
// Deterministic; memory grows with the window, not with the epoch.
class EpochWindows {
 public:
  struct Options {
    int64_t window = 0;  // samples of a window; 0, or at least the epoch's: one window
    int64_t epoch = 0;
    int64_t head = 0;  // groups at the beginning that complete a step of the previous epoch
  };
  // REQUIRES: the limits of `groups` are chosen (ChooseLimits()); global_batch > 0.
  EpochWindows(SampleList samples, const GroupOptions& groups, const Options& options);

  // Forms the next window's groups; false at the end of the epoch.
  bool Next();
  // Groups of the window; their samples are indices into places().
  const EpochGroups& groups() const { return groups_; }
  // Samples of the window, as indices into the epoch's list.
  const std::vector<int64_t>& places() const { return places_; }
  // Numbers, within the epoch, of the window's first group and of the one after its last.
  int64_t begin() const { return begin_; }
  int64_t end() const { return begin_ + groups_.size(); }
  const GroupOptions& options() const { return options_; }

 private:
  std::vector<SampleSize> Gather();

  SampleList samples_;
  GroupOptions options_;
  Options stream_;
  int64_t next_ = 0;  // index into the random order
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

// Forms all remaining windows; `each` is called after every one and may be empty.
EpochSummary SummarizeEpoch(EpochWindows windows, int64_t data_ranks,
                            const std::function<void(const EpochWindows&)>& each = {});

}  // namespace equipoise
