#pragma once

#include <cstdint>
#include <span>

#include "balance/load/sample_groups.h"

namespace equipoise {

// Ways to form micro-batches that balance nothing, or one thing: what the balanced ones are
// measured against. `order`: the samples in the order in which they are taken, all within the
// limits.

// Consecutive samples; the last group may be smaller.
SampleGroups RandomGroups(std::span<const int64_t> order, int64_t samples_a_group);

// Samples of similar length share a group (`group_by_length` of Transformers and LLaVA): in each
// run of groups_a_step * samples_a_group samples, the longest first, each goes to the group with
// the fewest tokens that is not full. A run makes one step. The last one's samples are dealt in
// turn.
struct LengthGroupedOptions {
  int64_t samples_a_group = 1;
  int64_t groups_a_step = 1;
};
SampleGroups LengthGroupedGroups(std::span<const SampleSize> sizes, std::span<const int64_t> order,
                                 const LengthGroupedOptions& options);

// Each sample goes to the fullest of a few open groups that has room for its tokens; patches are
// not looked at.
SampleGroups PackedGroups(std::span<const SampleSize> sizes, std::span<const int64_t> order,
                          int64_t tokens);

// In runs of samples that fill a few hundred groups: the longest first, each to the group with the
// fewest tokens that it fits into (nanoVLM's greedy knapsack, whose limit on pictures is one on
// patches here).
SampleGroups KnapsackGroups(std::span<const SampleSize> sizes, std::span<const int64_t> order,
                            const GroupLimits& limits);

}  // namespace equipoise
