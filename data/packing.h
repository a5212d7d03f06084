#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/cost_index.h"

namespace equipoise {

// Weight of each target of a sample with x targets: 1, 1/x, 1/sqrt(x) (InternVL's loss_reduction).
enum class LossWeight { kToken, kSample, kSquare };
LossWeight ParseLossWeight(const std::string& name);  // train.loss; throws ConfigError
double TargetWeight(LossWeight kind, int64_t targets);

// Samples that share one row of tokens: one micro-batch.
struct Pack {
  std::vector<int64_t> samples;  // ids in the cost index
  int64_t tokens = 0, tiles = 0, trained = 0;
  double weight = 0;  // sum of the target weights; = trained for kToken
};

// All micro-batches of one optimizer step, over all data ranks; the same on every mesh.
struct StepPlan {
  std::vector<Pack> packs;
  int64_t trained = 0;  // trained tokens of all packs
  double weight = 0;    // N of the loss: sum of their weights
  int64_t epoch = 0;
};

// Where the data stands: everything that resume needs.
struct DataPosition {
  int64_t epoch = 0;
  int64_t pack = 0;  // packs of this epoch already used
};

// Turns the index into an endless sequence of steps. In each epoch every usable sample of a source
// is used once; `repeat` below 1 takes the first part of the source's records, above 1 it repeats
// them, the fraction being another part in each epoch. Samples come in an order drawn from (seed,
// epoch) and go each to the fullest of a few open packs that has room. A pure function of (index,
// options, position): independent of ranks and threads, positioned in O(1) (one epoch is packed
// when first needed).
class PackPlanner {
 public:
  struct Options {
    int64_t max_tokens = 4096;
    int64_t global_batch = 16;  // packs a step
    uint64_t seed = 0;
    std::vector<double> repeat;  // of each source
    LossWeight loss = LossWeight::kToken;
  };
  // Throws DataError when no sample can be used, or when an epoch has less than one step (what to
  // do).
  PackPlanner(const CostIndex* index, Options options);

  // The step at `position`, which is moved behind it. The last packs of an epoch that do not fill a
  // step are followed by the first packs of the next epoch.
  StepPlan Next(DataPosition& position);
  int64_t PacksInEpoch(int64_t epoch);
  // Tokens of the epoch's packs as a share of their room.
  double FillShare(int64_t epoch);

 private:
  const std::vector<Pack>& Epoch(int64_t epoch);
  const CostIndex* index_;
  Options options_;
  int64_t cached_epoch_ = -1;
  std::vector<Pack> packs_;
};

// The first `most` usable samples in the order of the index, packed: held-out data.
std::vector<Pack> PackInOrder(const CostIndex& index, int64_t max_tokens, int64_t most,
                              LossWeight loss = LossWeight::kToken);

}  // namespace equipoise
