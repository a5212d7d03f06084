#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "balance/load/load_cost.h"

namespace equipoise {

// Options of the assignment of groups to optimizer steps, the second half of `isf+`.
struct StepAssignmentOptions {
  int64_t global_batch = 1;  // groups a step
  int64_t head = 0;          // groups that complete a step which the previous epoch began
  LoadCost cost;
  uint64_t seed = 0;
  int64_t epoch = 0;
  // Bound on the variation of the steps' tokens, if attainable: that of steps of randomly ordered
  // groups whose tokens have this standard deviation / mean.
  double token_spread = std::numeric_limits<double>::infinity();
};

// Orders the groups of an epoch: `head` groups, then full steps, then the rest (fewer than a step).
// Groups are sorted by patches and, among equals, by predicted time or at random. The list is cut
// into strata of equal size, and a stratum into one run of neighbours for each step. A step takes
// one run of every stratum, so that it has sets of nearly equal groups for the rows of
// AssignRows(); runs are matched so that the steps' sums of tokens are nearly equal. Both orders
// are tried with 2, 3, 4, 6, 8, ... strata: of those whose steps vary in tokens no more than
// allowed, the one is taken whose ranks wait least, estimated from some of the steps with rows of a
// quarter of a step. Head and rest are from the middle of the sorted list. Steps are in random
// order. Does not depend on the mesh. O(n log n).
std::vector<int64_t> AssignSteps(std::span<const LayerLoad> groups,
                                 const StepAssignmentOptions& options);

// Orders the groups of one step for `data_ranks` ranks: micro-batch m of rank r is entry
// m * data_ranks + r of the result, an index into `groups`. A row, one micro-batch of every rank,
// has neighbours in (patches, predicted time); in each row the rank with the least time so far gets
// the group with the most. The lightest row is first and the second lightest last, where the
// pipeline fills and drains; in between heavy and light rows alternate, so that two heavy ones are
// not in neighbouring stages at a time and saved activations of a stage vary little. An incomplete
// row is last.
std::vector<int64_t> AssignRows(std::span<const LayerLoad> groups, int64_t data_ranks,
                                const LoadCost& cost);

}  // namespace equipoise
