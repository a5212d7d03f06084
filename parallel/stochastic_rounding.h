#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/kernels/random_bits.h"
#include "parallel/parameter.h"

namespace equipoise {

// Where elements of a parameter from `element` on, counted in this rank's part, lie in its whole
// tensor.
kernels::WholePlace PlaceInWhole(const Parameter& parameter, int64_t element);

// What elements are rounded by: a key of tensor and step, and where they lie in the tensor.
struct RandomPlace {
  uint64_t key = 0;
  kernels::WholePlace place;
};

// kernels::RoundedByChance() of each element by kernels::RandomBits() of its number in the whole
// tensor, by LibTorch's operations. exact [n] fp32 and rounded [n] bf16, contiguous, on one device.
void RoundStochastically(const at::Tensor& exact, const RandomPlace& at, at::Tensor rounded);

}  // namespace equipoise
