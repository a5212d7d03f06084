#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/zero/tree_sum.h"

namespace equipoise {

// AddSquares() of tree_sum.h for a tensor: `values` is contiguous, fp32, on any device, and its
// first element begins block `first` of its tensor. On a GPU the sum within a block is a tree too,
// and the device sums up to nodes of 64 blocks: the host gets one number for every 4096 elements,
// and waits for it.
void AddSquares(const at::Tensor& values, int64_t first, TreeSum& sum);

}  // namespace equipoise
