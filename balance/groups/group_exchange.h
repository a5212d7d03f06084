#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "balance/load/random.h"
#include "balance/load/sample_groups.h"

namespace equipoise {

// The group of each sample; -1: none.
struct GroupOfSample {
  int64_t groups = 0;
  std::vector<int32_t> group;
};

struct ExchangeOptions {
  GroupLimits limits;
  int64_t passes = 1;
  // No group within the limits goes beyond them. Without it groups may, and do so the less the more
  // they would exceed them.
  bool keep_limits = true;
};

// Makes groups alike, in patches and in tokens: the group with the most and the one with the
// fewest, the second most and the second fewest, and so on, exchange the two samples, or hand over
// the one, that bring both nearest to the mean (pairwise interchange: Finn and Horowitz 1979, "A
// linear time approximation algorithm for multiprocessor scheduling"); then groups are paired anew.
// Ends before options.passes where no pair gains. O(samples) a pass. REQUIRES: limits > 0.
void ExchangeSamples(std::span<const SampleSize> sizes, const ExchangeOptions& options,
                     SplitMix& random, GroupOfSample& groups);

}  // namespace equipoise
