#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "balance/load/load_cost.h"
#include "balance/load/sample_groups.h"

namespace equipoise {

// One micro-batch as the balance sees it.
struct MicroBatchLoad {
  LayerLoad load;
  int64_t samples = 0;
  int64_t longest = 0;  // tokens of its longest sample
};

MicroBatchLoad LoadOfGroup(std::span<const SampleSize> sizes, std::span<const int64_t> samples);

// Unevenness of OmniBal (section "Imbalance"), pooled as the published code does: PadRatio is the
// share of all token positions computed that are padding, so 0 where nothing is padded; DistRatio,
// sum of (largest - own) over ranks / (largest * ranks), is averaged over rows; a row is one
// micro-batch of a step over the data ranks, a rank that has none counts with 0.
struct BalanceMetrics {
  double pad_ratio = 0;
  double fill_share = 0;  // of the micro-batches' room for tokens, what tokens fill
  double dist_ratio_vision = 0, dist_ratio_text = 0;  // of patches, and of tokens
  double dist_ratio_time = 0;                         // of predicted time
  double step_variation = 0;  // standard deviation / mean of the full steps' tokens
};

class BalanceMeter {
 public:
  struct Options {
    int64_t data_ranks = 1;
    LoadCost cost;
    // Samples of a micro-batch are padded to its longest, whose length counts as the rank's text;
    // otherwise they are packed without padding.
    bool padded = false;
    int64_t room = 0;  // tokens of a micro-batch; 0: what is computed, padding included
  };
  explicit BalanceMeter(const Options& options) : options_(options) {}

  // The micro-batches of a step: m of rank r is at m * data_ranks + r.
  void AddStep(std::span<const MicroBatchLoad> step);
  BalanceMetrics metrics() const;

 private:
  void AddRow(std::span<const MicroBatchLoad> row);

  Options options_;
  int64_t rows_ = 0, largest_step_ = 0;
  int64_t tokens_ = 0, computed_ = 0, room_ = 0;
  double vision_ = 0, text_ = 0, time_ = 0;
  // Sums over the steps with as many micro-batches as the largest: number, sums of tokens and of
  // squares.
  struct {
    double steps = 0, sum = 0, squares = 0;
  } full_;
};

// DistRatio of the loads of `ranks` ranks, those beyond the list being 0. 0 when all are 0.
double DistRatio(std::span<const double> loads, int64_t ranks);

}  // namespace equipoise
