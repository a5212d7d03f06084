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

// Forms groups that are full and nearly equal, in patches and in tokens: the first half of `isf+`
// (the second is step_assignment.h). Their number is the least that the sums of patches and tokens
// allow, and larger only where samples do not fit together:
// 1. Each sample, from the largest to the smallest, is added to the group with the least load
//    (longest processing time first, Graham 1969), regardless of the limits.
// 2. Groups exchange samples until they are nearly equal (group_exchange.h). Nearly all are then
//    within the limits, which are little above the mean.
// 3. Samples of groups beyond the limits are moved to the fullest group with enough room (best
// fit),
//    or to a new one; then groups exchange samples once more, within the limits.
// Samples of similar size are ordered at random, by (seed, epoch). O(n log n).
Grouping BalancedGroups(std::span<const SampleSize> sizes, const BalancedGroupsOptions& options);

}  // namespace equipoise
