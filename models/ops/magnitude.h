#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/ops/linear.h"
#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"

namespace equipoise::ops {

// DoRA (Liu et al. 2024, section 4.1): y = m z / ||W + scale B A||, where z = x (W + scale B A)'
// and the norm is of each output's row, a constant for backward (section 4.3).

// One linear layer of those that share z.
struct MagnitudePart {
  Parameter* magnitude = nullptr;  // m [width]
  LinearWeights linear;
  Parameter* a = nullptr;
  Parameter* b = nullptr;
  int64_t begin = 0;  // first column in z
};

// z [..., n] with the columns of each part scaled. `group`: the ranks that share the columns of W
// and A; null where a rank has them all.
at::Tensor Magnitudes(const at::Tensor& z, const std::vector<MagnitudePart>& parts, double scale,
                      Communicator* group);

// z [..., n] plus the biases of linear layers that follow each other.
at::Tensor AddBiases(const at::Tensor& z, const std::vector<LinearWeights>& linears);

}  // namespace equipoise::ops
