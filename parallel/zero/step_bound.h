#pragma once

#include <cstdint>

namespace equipoise {

// Bounds on the inputs of one step of AdamW: the largest over all parameters and ranks.
struct StepSize {
  double gradient = 0;  // bound on the magnitude of its elements, such as their norm
  double lr = 0;
  double weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  int64_t number = 1;   // 1 = the first
  double rounding = 0;  // of weights between steps: the most that it adds, as a share
};

// Bounds on the magnitudes of weights and moments of AdamW. The bounds after a step follow from
// those before it without reading the elements, so that nearly every step is known in advance to
// leave finite numbers only. Free of LibTorch.
struct StepBound {
  double weight = 0, average = 0, square = 0;

  // Whether all bounds are far below the largest fp32 and bf16 numbers. False for NaN.
  bool safe() const;
  // The bounds after a step. Not safe() where an intermediate value, such as the square of a
  // gradient, may overflow.
  StepBound After(const StepSize& step) const;
};

}  // namespace equipoise
