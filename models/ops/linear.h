#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "models/ops/shared_rows.h"
#include "models/ops/tensor_ranks.h"
#include "parallel/parameter.h"

namespace equipoise::ops {

// A weight and its bias (null where there is none). A weight of more than two dimensions, such as
// that of a convolution over patches, is taken as [out, all others].
struct LinearWeights {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;
};

// Linear layers that share their input: x [..., in] -> [..., sum of out], the concatenation of x
// times each weight, transposed, plus its bias (query, key and value; gate and up). Weights that
// are adjacent in memory are one matrix product. REQUIRES: all weights are trained, or none.
// `kept`: what is kept of x for the weights' gradients in place of x, its rows on this rank; null:
// x itself. `beside`: of a sum over ranks that the gradient of x goes through; null: none.
at::Tensor FusedLinear(const at::Tensor& x, const std::vector<LinearWeights>& parts,
                       const std::shared_ptr<SharedInput>& kept = nullptr,
                       const BesideSum& beside = nullptr);

// A linear layer: x [..., in] -> [..., out].
at::Tensor Linear(const at::Tensor& x, Parameter& weight, Parameter* bias = nullptr);

}  // namespace equipoise::ops
