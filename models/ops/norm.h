#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"

namespace equipoise::ops {

// LayerNorm over the last dimension. Statistics are fp32 for every dtype of x; the result has x's
// dtype.
at::Tensor LayerNorm(const at::Tensor& x, Parameter& weight, Parameter& bias, double eps);
// RMSNorm: x / sqrt(mean(x^2) + eps), rounded to x's dtype, times the weight: T5's and LLaMA's
// order. On a GPU, LibTorch's fused kernel rounds once, after the weight.
//
// The mean is over runs of as many elements as the weight has: the last dimension of x, or each
// head in it. Where tensor-parallel ranks have different heads but the same weight, `group` sums
// the weight's gradient over them.
at::Tensor RmsNorm(const at::Tensor& x, Parameter& weight, double eps,
                   Communicator* group = nullptr);

}  // namespace equipoise::ops
