#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/parameter.h"

namespace equipoise::ops {

// A weight and its bias (null where there is none). More than two dimensions of the weight count as
// [out, everything else], as a convolution over patches needs it.
struct LinearWeights {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;
};

// x [..., in] -> [..., sum of out]: x times each weight, transposed, plus its bias, the results
// side by side (query, key and value; gate and up). Weights that lie behind each other in memory
// are one matrix product. All must be trainable alike.
at::Tensor FusedLinear(const at::Tensor& x, const std::vector<LinearWeights>& parts);

// x [..., in] -> [..., out].
at::Tensor Linear(const at::Tensor& x, Parameter& weight, Parameter* bias = nullptr);

}  // namespace equipoise::ops
