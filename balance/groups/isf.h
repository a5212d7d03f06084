#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "balance/load/sample_groups.h"

namespace equipoise {

// Iterative sampling and filtering of OmniBal (section "Balanced dynamic mini-batches"; published
// code: BalancedDataset of ModelTC/OmniBal).
struct IsfOptions {
  GroupLimits limits;
  // A group is accepted that has at least this many patches, or this many tokens (Q'_v, Q'_t).
  int64_t min_patches = 0, min_tokens = 0;
  int64_t rounds = 50;  // of sampling; 1: no filtering
  uint32_t seed = 1024;
};

// Result of a round of sampling and filtering.
struct IsfRound {
  int64_t accepted = 0;         // groups accepted in this round
  int64_t samples_in_pool = 0;  // samples left for the next round
};

// Forms groups by ISF. A round fills groups from a random order, one at a time (next fit), accepts
// those that are full enough, and returns the samples of the others to the pool. The groups of the
// last round are all kept, at the end of the list: shuffle groups before use. Groups and order are
// those of the published code, without its bugs: every sample within the limits is in one group,
// those beyond them are returned, and patches above min_patches are accepted.
Grouping IsfGroups(std::span<const SampleSize> sizes, const IsfOptions& options,
                   std::vector<IsfRound>* report = nullptr);

}  // namespace equipoise
