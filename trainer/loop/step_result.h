#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "balance/load/balance_metrics.h"
#include "data/loading/packing.h"
#include "data/records/bad_sample.h"
#include "models/spec/layer_load.h"
#include "trainer/loop/step_drift.h"

namespace equipoise {

// Result of one optimizer step; the same on every rank where nothing else is said.
struct StepResult {
  // Weighted mean over the targets of the step, and gradient norm before clipping; absent when no
  // target was there (no picture of the step could be decoded): the step is skipped.
  std::optional<double> loss, grad_norm;
  bool updated = false;  // whether weights have changed: not in a step that is skipped
  double lr = 0;
  int64_t tokens = 0, samples = 0, images = 0;
  BalanceMetrics balance;  // as MeasureStep() gives it
  int64_t bad_samples = 0;
  double step_s = 0;
  double data_wait_s = 0;  // longest of the ranks
  // With a pipeline: the ranks' mean idle share of the passes, until the slowest rank ends.
  std::optional<double> bubble_share;
  std::optional<double> predicted_step_s, mfu;  // where the devices' speed is known
  std::optional<double> eval_loss;  // on data.eval, where it was measured after this step
  bool stop = false;                // some rank was asked to stop
  DataPosition after;               // where the data stands now

  // This rank alone:
  RankTimes times;
  std::vector<LayerLoad> loads;  // of its data rank's micro-batches
  std::vector<BadSample> bad;    // where it reports the loss
};

}  // namespace equipoise
