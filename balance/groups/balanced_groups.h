#pragma once

#include <cstdint>
#include <span>

#include "balance/load/sample_groups.h"

namespace equipoise {

struct BalancedGroupsOptions {
  GroupLimits limits;
  uint64_t seed = 0;
  int64_t epoch = 0;
};

// Groups that are full and alike, in patches and in tokens: the first half of `isf+` (the second is
// step_assignment.h). There are as few as the sums of patches and tokens allow, and more only where
// samples do not fit together:
// 1. Samples go, from the largest to the smallest, to the group that has the least (longest
//    processing time first, Graham 1969), whether the limits hold or not.
// 2. Groups exchange samples until they are alike (group_exchange.h), which brings nearly all
//    within the limits, and these hold little more than the mean.
// 3. What is beyond the limits goes to the group with the least room that has enough, or to a new
//    one; then groups exchange samples once more, within the limits.
// Samples of similar size change places at random, drawn from (seed, epoch). O(n log n).
Grouping BalancedGroups(std::span<const SampleSize> sizes, const BalancedGroupsOptions& options);

}  // namespace equipoise
