#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "parallel/zero/zero_optimizer.h"
#include "trainer/run/parallel_model.h"

namespace equipoise {

// These functions add this rank's part of a tensor that is distributed over a mesh to `whole`, fp32
// in the shape of the whole tensor. Each element is added by exactly one rank, so that an
// all-reduce (sum) of tensors that were zero yields the whole tensor.

// Adds the gradient of parameter `index` after RunStep().
void AddGradient(ParallelModel& model, size_t index, at::Tensor& whole);
// Adds a tensor of ZeroOptimizer::ToSave().
void AddState(const ZeroOptimizer::State& state, at::Tensor& whole);

}  // namespace equipoise
