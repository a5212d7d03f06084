#pragma once

#include <cstdint>

namespace equipoise {

// What of a step of AdamW decides how far it can go. The largest over all parameters and ranks.
struct StepSize {
  double gradient = 0;  // magnitude of its elements, at most: such as their norm
  double lr = 0;
  double weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  int64_t number = 1;  // 1 = the first
};

// Magnitudes that no weight and no moment of AdamW exceeds. From those before a step follow those
// after it, without a look at the elements: so it is known of nearly every step, before it is
// taken, that it leaves finite numbers only. LibTorch-free.
struct StepBound {
  double weight = 0, average = 0, square = 0;

  // All far within what fp32 and bf16 can hold. False for NaN.
  bool safe() const;
  // After a step. Not safe() either where a number on the way there, such as the square of a
  // gradient, may be too large.
  StepBound After(const StepSize& step) const;
};

}  // namespace equipoise
