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
  // A group is accepted once it has this many patches, or this many tokens (Q'_v, Q'_t).
  int64_t min_patches = 0, min_tokens = 0;
  int64_t rounds = 50;  // of sampling; 1 = sampling alone
  uint32_t seed = 1024;
};

// Result of a round of sampling and filtering.
struct IsfRound {
  int64_t accepted = 0;         // groups, of this round
  int64_t samples_in_pool = 0;  // that go into the next round
};

// Fills groups in a random order, one open at a time, keeps those that are full enough, throws the
// samples of the others together again, and so on; what remains after the last round is kept as it
// is, at the end of the list: shuffle groups before use. The same groups in the same order as the
// published code gives, without its faults: every sample within the limits is in one group, those
// beyond them are returned, and patches above min_patches count as enough.
Grouping IsfGroups(std::span<const SampleSize> sizes, const IsfOptions& options,
                   std::vector<IsfRound>* report = nullptr);

}  // namespace equipoise
