#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "balance/load/balance_metrics.h"
#include "data/loading/packing.h"
#include "data/records/bad_sample.h"
#include "models/spec/layer_load.h"
#include "trainer/answers/answer_scores.h"
#include "trainer/loop/step_drift.h"

namespace equipoise {

// The mean scores of the answers to a set of questions.
struct SetScores {
  std::string set;  // AnswerSetNames()
  AnswerScores scores;
};

// Result of one optimizer step; the same on every rank except for the last fields.
struct StepResult {
  // Weighted mean loss over the step's targets, and gradient norm before clipping; absent when
  // there was no target (no picture of the step could be decoded), or where ranks before the loss
  // could not read what those of the loss could: the step is skipped.
  std::optional<double> loss, grad_norm;
  bool updated = false;              // whether weights have changed: false in a skipped step
  std::optional<double> loss_scale;  // in fp16: that of this step
  double lr = 0;
  int64_t tokens = 0, samples = 0, images = 0;
  BalanceMetrics balance;  // as MeasureStep() gives it
  int64_t bad_samples = 0;
  double step_s = 0;
  double data_wait_s = 0;  // maximum over the ranks
  // Seconds since the step before ended, and those of them in which a checkpoint was saved; absent
  // in the first step of a start. This rank's.
  std::optional<double> pause_s, checkpoint_s;
  std::optional<double> outer_s;  // of the outer step behind this one, where it ends a round
  // With a pipeline: mean over the ranks of the idle share of the passes, until the slowest ends.
  std::optional<double> bubble_share;
  std::optional<double> predicted_step_s, mfu;  // where the devices' speed is known
  std::optional<double> eval_loss;  // on data.eval, where it was measured after this step
  std::vector<SetScores> answers;   // of eval.answers, likewise
  bool stop = false;                // whether some rank received a request to stop
  DataPosition after;               // in the data, after the step

  // This rank alone:
  RankTimes times;
  std::vector<LayerLoad> loads;  // of its data rank's micro-batches; encoded ones of the next step
  int taken = 0;                 // of these micro-batches the step before has encoded so many
  std::vector<BadSample> bad;    // where this rank reports the loss; on rank 0 also missed ones
};

}  // namespace equipoise
