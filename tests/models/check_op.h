#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "parallel/parameter.h"

namespace equipoise::testing {

using Tensors = std::vector<at::Tensor>;
using Weights = std::vector<Parameter*>;

// An operation of inputs and weights of these sizes, and the same formula in ATen's autograd.
struct Problem {
  std::vector<std::vector<int64_t>> inputs, weights;
  std::function<at::Tensor(const Tensors&, const Weights&)> ours;
  std::function<at::Tensor(const Tensors&, const Tensors&)> reference;
};

std::vector<Parameter> MakeParameters(const std::vector<std::vector<int64_t>>& shapes);
Weights Pointers(std::vector<Parameter>& parameters);

// CHECKs that the result, the gradients of inputs and those of weights are the reference's, which
// computes in double precision, in fp32, bf16 and fp16. `adjacent` = weights behind each other in
// one buffer, as in training; else each on its own.
void Check(const Problem& problem, bool adjacent = true);

}  // namespace equipoise::testing
