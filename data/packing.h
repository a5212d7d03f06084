#pragma once

#include <cstdint>
#include <vector>

#include "data/cost_index.h"

namespace equipoise {

// Samples that share one row of tokens: one micro-batch.
struct Pack {
  std::vector<int64_t> samples;     // ids in the cost index
  int64_t tokens = 0, tiles = 0, trained = 0;
};

// All micro-batches of one optimizer step, over all data ranks; the same on every mesh.
struct StepPlan {
  std::vector<Pack> packs;
  int64_t trained = 0;              // N of the loss: trained tokens of all packs
  int64_t epoch = 0;
};

// Where the data stands: everything that resume needs.
struct DataPosition {
  int64_t epoch = 0;
  int64_t pack = 0;                 // packs of this epoch already used
};

// Turns the index into an endless sequence of steps. A pure function of (index, options, position):
// independent of ranks and threads, and positioned in O(1) (one epoch is packed when first needed).
class PackPlanner {
 public:
  struct Options {
    int64_t max_tokens = 4096;
    int64_t global_batch = 16;      // packs a step
    uint64_t seed = 0;
    std::vector<double> repeat;     // of each source
  };
  // Throws DataError when no sample can be used, or when an epoch has less than one step (what to do).
  PackPlanner(const CostIndex* index, Options options);

  // The step at `position`, which is moved behind it. The last packs of an epoch that do not fill a step
  // are followed by the first packs of the next epoch.
  StepPlan Next(DataPosition& position);
  int64_t PacksInEpoch(int64_t epoch);

 private:
  const std::vector<Pack>& Epoch(int64_t epoch);
  const CostIndex* index_;
  Options options_;
  int64_t cached_epoch_ = -1;
  std::vector<Pack> packs_;
};

}  // namespace equipoise
