#pragma once

#include <cstdint>
#include <span>

#include "balance/sample_groups.h"

namespace equipoise {

struct BalancedGroupsOptions {
  GroupLimits limits;
  uint64_t seed = 0;
  int64_t epoch = 0;
};

// Groups that are full and alike: the first half of `isf+` (the second is step_deal.h). There are
// as few as the sums of tiles and tokens allow, and more only where a sample fits into none of
// them. A sample's share is its tiles, or those that its tokens would fill if that is more. Samples
// are placed from the largest share to the smallest:
// - those above a ninth of a group go to the group with the most share left, among these to the one
//   with the most tokens: large samples spread out, and long ones meet short ones;
// - the small ones, longest first, go to the group whose tokens are furthest below those that its
//   tiles left will bring on average (longest processing time first, Graham 1969, with a number of
//   places), so that the shortest even out what is left. Where tokens and not tiles fill the
//   groups, they go to the group with the most tokens that has room (best fit): full groups are
//   alike.
// Samples of similar length change places at random, drawn from (seed, epoch). O(n log n).
Grouping BalancedGroups(std::span<const SampleSize> sizes, const BalancedGroupsOptions& options);

}  // namespace equipoise
