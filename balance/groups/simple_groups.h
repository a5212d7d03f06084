#pragma once

#include <cstdint>
#include <span>

#include "balance/load/sample_groups.h"

namespace equipoise {

// The baselines that other trainers use, which balance nothing or one quantity. `order` is the
// order in which samples are taken; all are within the limits.

// Groups of consecutive samples; the last group may be smaller.
SampleGroups RandomGroups(std::span<const int64_t> order, int64_t samples_a_group);

// Groups of samples of similar length (`group_by_length` of Transformers and LLaVA). Each run of
// groups_a_step * samples_a_group samples makes the groups of one step: each sample, longest first,
// is added to the group with the fewest tokens that is not full. An incomplete last run is
// distributed round-robin.
struct LengthGroupedOptions {
  int64_t samples_a_group = 1;
  int64_t groups_a_step = 1;
};
SampleGroups LengthGroupedGroups(std::span<const SampleSize> sizes, std::span<const int64_t> order,
                                 const LengthGroupedOptions& options);

// Groups by best fit: each sample is added to the fullest of a few open groups that has room for
// its tokens. Patches are ignored.
SampleGroups PackedGroups(std::span<const SampleSize> sizes, std::span<const int64_t> order,
                          int64_t tokens);

// Groups by nanoVLM's greedy knapsack, with its limit on pictures as one on patches: in runs of
// samples that fill a few hundred groups, each sample, longest first, is added to the group with
// the fewest tokens in which it fits.
SampleGroups KnapsackGroups(std::span<const SampleSize> sizes, std::span<const int64_t> order,
                            const GroupLimits& limits);

}  // namespace equipoise
