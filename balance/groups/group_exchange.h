#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "balance/load/random.h"
#include "balance/load/sample_groups.h"

namespace equipoise {

// An assignment of samples to groups.
struct GroupOfSample {
  int64_t groups = 0;          // number of groups
  std::vector<int32_t> group;  // of each sample; -1: none
};

struct ExchangeOptions {
  GroupLimits limits;
  int64_t passes = 1;
  // Whether a group within the limits must stay within them. Else an exchange may exceed them, at a
  // cost that grows with the square of the excess.
  bool keep_limits = true;
};

// Makes groups nearly equal, in patches and in tokens, by pairwise interchange (Finn and Horowitz
// 1979, "A linear time approximation algorithm for multiprocessor scheduling"). A pass pairs the
// group with the most and the one with the least, the second most and the second least, and so on;
// a pair exchanges the two samples, or moves the one, that bring both nearest to the mean. Ends
// before options.passes when no pair gains. O(samples) a pass. REQUIRES: limits > 0.
void ExchangeSamples(std::span<const SampleSize> sizes, const ExchangeOptions& options,
                     SplitMix& random, GroupOfSample& groups);

}  // namespace equipoise
