#pragma once

#include <cstdint>

#include "trainer/settings/run_config.h"

namespace equipoise {

// The factor of the loss in fp16, whose gradients would be 0 without it, and infinite with too
// large a one. It is a power of two, so that gradients are multiplied and divided exactly. Every
// rank has a scaler, which sees the same norms, so all ranks decide alike without communication.
// LibTorch-free.
class LossScaler {
 public:
  // Always 1.
  LossScaler() = default;
  // That of a run: of `train` in fp16, else always 1.
  explicit LossScaler(const TrainSection& train);

  bool on() const { return on_; }
  double scale() const { return state_.scale; }
  const LossScale& state() const { return state_; }
  // Goes on from a checkpoint's state, within the bounds of this run. REQUIRES: on().
  void Restore(const LossScale& state);

  // Whether an overflow may be the scale's fault: it can become smaller.
  bool CanLower() const { return on_ && state_.scale > minimum_; }
  // After a step whose gradients have overflowed: halves the scale. REQUIRES: CanLower().
  void Lower();
  // After a step that was taken: doubles the scale where `growth_interval` were in a row. Returns
  // whether it has.
  bool StepTaken();

 private:
  bool on_ = false;
  double minimum_ = 1;
  int64_t growth_interval_ = 0;
  LossScale state_;
};

// Throws ConfigError where a scale is no power of two, or the first one is below the smallest.
void CheckLossScale(const LossScaleSection& section);

}  // namespace equipoise
