#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "balance/load/load_cost.h"

namespace equipoise {

// Which groups make which optimizer step: the second half of `isf+`.
struct StepAssignmentOptions {
  int64_t global_batch = 1;  // groups a step
  // The first `head` groups complete a step that the epoch before began.
  int64_t head = 0;
  LoadCost cost;
  uint64_t seed = 0;
  int64_t epoch = 0;
  // Steps vary in tokens no more than those of randomly ordered groups whose tokens have this
  // standard deviation / mean, as far as that can be had.
  double token_spread = std::numeric_limits<double>::infinity();
};

// Orders the groups of an epoch: `head` of them, then full steps, then what is left (fewer than a
// step). Groups are sorted by patches and, within these, by predicted time or at random; the list
// is cut into strata of equal size, a stratum into one run of neighbours for each step. A step
// takes one run of every stratum, so that it holds sets of nearly equal groups for the rows of
// AssignRows(); runs are matched so that the steps' sums of tokens are as equal as can be. Both
// orders are tried with 2, 3, 4, 6, 8, ... strata: of those whose steps vary in tokens no more than
// allowed, the one is taken whose ranks wait least, told from some of the steps in rows of a
// quarter of a step. Head and rest come from the middle of the sorted list. Steps come in random
// order. Does not depend on the mesh. O(n log n).
std::vector<int64_t> AssignSteps(std::span<const LayerLoad> groups,
                                 const StepAssignmentOptions& options);

// Orders the groups of one step for `data_ranks` ranks: micro-batch m of rank r is group
// m * data_ranks + r of the result. Neighbours in (patches, predicted time) share a row, that is a
// micro-batch over all ranks; in each row the rank that has had the least so far gets the most.
// Rows: the lightest comes first and the second lightest last, as these fill and drain the
// pipeline; between them heavy and light ones alternate, so that two heavy ones do not meet in
// neighbouring stages, and what a stage keeps for backward stays even. A row that lacks ranks comes
// last. Returns indices into `groups`.
std::vector<int64_t> AssignRows(std::span<const LayerLoad> groups, int64_t data_ranks,
                                const LoadCost& cost);

}  // namespace equipoise
