#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/checkpoint/loaded_model.h"

namespace equipoise {

// What merging adapters into their base has changed.
struct MergeDifference {
  double weight = 0;  // largest change of a weight by its adapter
  double logit = 0;   // largest difference of a logit before and after, on `tokens` tokens
  double largest_logit = 0;
  int64_t tokens = 0;
};

// Adds each adapter to the weight that it is of, rounded to `dtype`, and sets the adapter to
// nothing: W := W + scale B A, times the magnitudes with DoRA. A weight that was packed is
// unpacked. REQUIRES: a model for inference in fp32 on the CPU.
MergeDifference MergeAdapters(LoadedModel& model, at::ScalarType dtype);

}  // namespace equipoise
