#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "parallel/zero/zero_optimizer.h"
#include "trainer/run/parallel_model.h"

namespace equipoise {

// This rank's contribution to a whole tensor that is spread over the ranks of a mesh: `whole` has
// the whole shape, and is zero where another rank contributes. Over all ranks everything comes
// once.

// The gradient that RunStep() has left for parameter `index`.
void AddGradient(ParallelModel& model, size_t index, at::Tensor& whole);
// A tensor of ZeroOptimizer::ToSave().
void AddState(const ZeroOptimizer::State& state, at::Tensor& whole);

}  // namespace equipoise
