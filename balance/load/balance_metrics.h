#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "balance/load/load_cost.h"
#include "balance/load/sample_groups.h"

namespace equipoise {

// The load of a micro-batch, as BalanceMeter needs it.
struct MicroBatchLoad {
  LayerLoad load;
  int64_t samples = 0;
  int64_t longest = 0;  // tokens of the longest sample
};

// The load of a group; `samples` are indices into `sizes`.
MicroBatchLoad LoadOfGroup(std::span<const SampleSize> sizes, std::span<const int64_t> samples);

// Imbalance by OmniBal's measures (section "Imbalance"), pooled as in the published code. PadRatio
// is the share of computed token positions that are padding. DistRatio, sum of (largest - own) over
// ranks / (largest * ranks), is averaged over rows; a row is one micro-batch of a step on every
// data rank, and a rank without one counts as 0.
struct BalanceMetrics {
  double pad_ratio = 0;
  double fill_share = 0;  // tokens / room for tokens of the micro-batches
  double dist_ratio_vision = 0, dist_ratio_text = 0;  // of patches, and of tokens
  double dist_ratio_time = 0;                         // of predicted time
  double step_variation = 0;  // standard deviation / mean of the full steps' tokens
};

// Accumulates BalanceMetrics over steps.
class BalanceMeter {
 public:
  struct Options {
    int64_t data_ranks = 1;
    LoadCost cost;
    // Whether the samples of a micro-batch are padded to the longest, whose length then counts as
    // the rank's text; else they are packed without padding.
    bool padded = false;
    int64_t room = 0;  // room of a micro-batch, in tokens; 0: computed tokens, padding included
  };
  explicit BalanceMeter(const Options& options) : options_(options) {}

  // Adds the micro-batches of a step: m of rank r is at m * data_ranks + r.
  void AddStep(std::span<const MicroBatchLoad> step);
  BalanceMetrics metrics() const;

 private:
  void AddRow(std::span<const MicroBatchLoad> row);

  Options options_;
  int64_t rows_ = 0, largest_step_ = 0;
  int64_t tokens_ = 0, computed_ = 0, room_ = 0;
  double vision_ = 0, text_ = 0, time_ = 0;
  // Sums over the steps that have as many micro-batches as the largest: their number, their tokens
  // and the squares of these.
  struct {
    double steps = 0, sum = 0, squares = 0;
  } full_;
};

// DistRatio of the loads of `ranks` ranks; loads beyond the list are 0. Returns 0 when all are 0.
double DistRatio(std::span<const double> loads, int64_t ranks);

}  // namespace equipoise
