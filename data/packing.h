#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "balance/group_plan.h"
#include "data/cost_index.h"
#include "data/data_config.h"

namespace equipoise {

// Weight of each target of a sample with x targets: 1, 1/x, 1/sqrt(x) (InternVL's loss_reduction).
enum class LossWeight { kToken, kSample, kSquare };
LossWeight ParseLossWeight(const std::string& name);  // train.loss; throws ConfigError
double TargetWeight(LossWeight kind, int64_t targets);

// Samples that share one row of tokens: one micro-batch.
struct Pack {
  std::vector<int64_t> samples;  // ids in the cost index
  int64_t tokens = 0, tiles = 0, trained = 0;
  double weight = 0;       // sum of the target weights; = trained for kToken
  int64_t longest = 0;     // tokens of the longest sample
  int64_t row_tokens = 0;  // = tokens, or as many with each sample padded to the longest
  double token_pairs = 0;  // of the samples' causal attention, see LayerLoad

  // What the row asks of the layers, and what of that is no padding.
  LayerLoad load() const;
  LayerLoad useful() const { return {tiles, tokens, token_pairs, trained}; }
};

// `pad`: each sample takes as many tokens of the row as the longest.
Pack MakePack(const CostIndex& index, std::span<const int64_t> samples, LossWeight loss,
              bool pad = false);

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

std::vector<double> SourceRepeats(const std::vector<SourceConfig>& sources);

// The usable samples of an epoch in the order of the index: those of a source once, with `repeat`
// below 1 the first part of its records, above 1 all of them repeatedly, the fraction being another
// part in each epoch.
std::vector<int64_t> SamplesOfEpoch(const CostIndex& index, const std::vector<double>& repeat,
                                    uint64_t seed, int64_t epoch);
std::vector<SampleSize> SizesOf(const CostIndex& index, const std::vector<int64_t>& samples);

// Turns the index into an endless sequence of steps: packs by balance/group_plan.h, formed anew in
// each epoch. A pure function of (index, options, position), positioned in O(1) (an epoch is
// planned when first needed). A step's set of packs depends neither on ranks nor on threads; its
// order does on data_ranks: pack m * data_ranks + r is micro-batch m of data rank r.
class PackPlanner {
 public:
  struct Options {
    GroupOptions groups;  // limits that are 0 are chosen from the first epoch's samples
    int64_t data_ranks = 1;
    std::vector<double> repeat;  // of each source
    LossWeight loss = LossWeight::kToken;
    bool pad = false;  // each sample to the longest of its pack
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
  // Balance of an epoch over the data ranks.
  BalanceMetrics Measure(int64_t epoch);
  // Samples of the epoch that exceed the limits and are left out.
  int64_t OversizeInEpoch(int64_t epoch);
  const GroupOptions& groups() const { return options_.groups; }

 private:
  struct Planned {
    int64_t epoch = -1, head = -1;
    std::vector<int64_t> samples;  // of the index; groups count in these
    EpochGroups groups;
  };
  // `head`: packs that complete the step before; only their number decides the order.
  const Planned& Epoch(int64_t epoch, int64_t head);
  const Planned& AnyOrder(int64_t epoch);
  Pack PackAt(const Planned& epoch, int64_t place) const;
  void RefuseTooLittleData();

  const CostIndex* index_;
  Options options_;
  Planned planned_;
};

// Unevenness of one step over the data ranks (balance/balance_metrics.h); pad_ratio is here the
// share of the micro-batches' room that no token fills.
BalanceMetrics MeasureStep(const StepPlan& step, const GroupOptions& options, int64_t data_ranks);

// The first `most` usable samples in the order of the index, packed: held-out data.
std::vector<Pack> PackInOrder(const CostIndex& index, int64_t max_tokens, int64_t most,
                              LossWeight loss = LossWeight::kToken);

}  // namespace equipoise
