#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/zero/tree_sum.h"

namespace equipoise {

// AddSquares() of the elements of `values` (contiguous, fp32, on any device), of which the first
// begins block `first` of its tensor. Not on the CPU, the sums within blocks are trees too, and the
// tree is made there up to nodes of 64 blocks: the host gets one number for every 4096 elements,
// and waits for it.
void AddSquares(const at::Tensor& values, int64_t first, TreeSum& sum);

}  // namespace equipoise
