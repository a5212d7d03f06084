#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "balance/groups/epoch_windows.h"
#include "balance/groups/group_plan.h"
#include "data/index/cost_index.h"
#include "data/loading/epoch_samples.h"
#include "data/settings/data_config.h"
#include "data/settings/loss_weight.h"

namespace equipoise {

// Samples that share one row of tokens: one micro-batch.
struct Pack {
  std::vector<int64_t> samples;  // ids in the cost index
  int64_t tokens = 0, trained = 0;
  PictureLoad pictures;
  double weight = 0;       // sum of the target weights; = trained for kToken
  int64_t longest = 0;     // tokens of the longest sample
  int64_t row_tokens = 0;  // = tokens, or as many with each sample padded to the longest
  double token_pairs = 0;  // of the samples' causal attention, see LayerLoad

  // The load of the row on the layers, and the part of it that is no padding.
  LayerLoad load() const;
  LayerLoad useful() const;
};

// The pack of `samples`. `pad`: each sample takes as many tokens of the row as the longest.
Pack MakePack(const CostIndex& index, std::span<const int64_t> samples, LossWeight loss,
              bool pad = false);

// All micro-batches of one optimizer step, over all data ranks; the same on every mesh.
struct StepBatches {
  std::vector<Pack> packs;
  int64_t trained = 0;  // trained tokens of all packs
  double weight = 0;    // N of the loss: sum of their weights
  int64_t epoch = 0;
};

// Position in the data: everything that resume needs.
struct DataPosition {
  int64_t epoch = 0;
  int64_t pack = 0;  // packs of this epoch already used
};

// `repeat` of the sources; files of a range are one.
std::vector<RepeatedSources> SourceRepeats(const std::vector<SourceConfig>& sources);

std::vector<SampleSize> SizesOf(const CostIndex& index, const std::vector<int64_t>& samples);

// Endless sequence of steps from the index: packs by balance/groups/epoch_windows.h, formed for
// each epoch. A pure function of (index, options, position). A position is two numbers, however
// long the run: resuming forms the epoch again, at half a second per million samples; of an epoch
// in windows those up to the position. The set of packs of a step depends neither on ranks nor on
// threads; its order depends on data_ranks: pack m * data_ranks + r is micro-batch m of data rank
// r.
class EpochPacker {
 public:
  struct Options {
    GroupOptions groups;  // limits that are 0 are chosen from the first epoch's samples
    int64_t window = 0;   // samples that are grouped at a time; 0: all of an epoch
    int64_t data_ranks = 1;
    std::vector<RepeatedSources> repeat;
    LossWeight loss = LossWeight::kToken;
  };
  // Throws DataError when no sample can be used, or when an epoch has less than one step (what to
  // do).
  EpochPacker(const CostIndex* index, Options options);

  // Returns the step at `position`, and advances `position` past it. The last packs of an epoch
  // that do not fill a step are followed by the first packs of the next epoch.
  StepBatches Next(DataPosition& position);
  // Balance of an epoch that begins with a step, over the data ranks, its packs formed by `groups`.
  EpochSummary Summarize(int64_t epoch, const GroupOptions& groups) const;
  EpochSummary Summarize(int64_t epoch) const { return Summarize(epoch, options_.groups); }
  const GroupOptions& groups() const { return options_.groups; }

 private:
  // The epoch at the position, formed up to there.
  struct Forming {
    int64_t epoch = -1, head = -1;
    std::optional<EpochSamples> samples;
    std::optional<EpochWindows> windows;
  };
  EpochSamples SamplesOf(int64_t epoch) const;
  EpochWindows WindowsOf(int64_t epoch, int64_t head, const GroupOptions& groups) const;
  // Forms the window that has the pack at `position`; false at the end of the epoch. `head`: packs
  // that complete the step before; only their number decides the order.
  bool Form(const DataPosition& position, int64_t head);
  Pack PackAt(int64_t pack) const;
  void RefuseTooLittleData();

  const CostIndex* index_;
  Options options_;
  Forming forming_;
};

// Unevenness of one step over the data ranks (balance/load/balance_metrics.h).
BalanceMetrics MeasureStep(const StepBatches& step, const GroupOptions& options,
                           int64_t data_ranks);

// The first `most` usable samples in the order of `samples`, or of the index, packed: held-out
// data.
std::vector<Pack> PackInOrder(const CostIndex& index, int64_t max_tokens, int64_t most,
                              LossWeight loss = LossWeight::kToken,
                              const EpochSamples* samples = nullptr);

}  // namespace equipoise
