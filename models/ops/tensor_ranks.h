#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"

namespace equipoise::ops {

// Exchanges between tensor-parallel ranks. Every rank calls the same functions in the same order on
// tensors of the same shape; backward then exchanges in the same order too, because the autograd
// engine runs the nodes of equal graphs by their age, on the calling thread. All sums are in fp32
// in rank order: the same bits on every rank.

// x is whole on every rank; each goes on with its own share of the weights. Backward sums the
// gradient over the ranks. REQUIRES: the gradient belongs to x alone, as that of a linear layer.
at::Tensor AllReduceBackward(const at::Tensor& x, Communicator& group);

// The sum of x [..., n] over the ranks, plus `bias` [n] unless it is null. Takes the memory of x,
// which nothing else may use. Every rank's gradient is that of the result.
at::Tensor AllReduceForward(const at::Tensor& x, Parameter* bias, Communicator& group);

// x; backward sums the gradient over the ranks that have the same `part` of `parts`.
at::Tensor SumGradientOfPart(const at::Tensor& x, int part, int parts, Communicator& group);

}  // namespace equipoise::ops
