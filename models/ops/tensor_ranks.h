#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"

namespace equipoise::ops {

// Exchanges between tensor-parallel ranks. Every rank calls the same functions in the same order on
// tensors of the same shape; backward then exchanges in the same order too, because the autograd
// engine runs the nodes of equal graphs in order of creation, latest first, on the calling thread.
// All sums are in fp32 in rank order: the same bits on every rank.

// Weight gradients of linear layers, to be computed while the gradient of the input that they share
// is summed over ranks (as Megatron-LM does): a backward has nothing else to run then. Backward of
// the linear layers fills it, that of what sums empties it.
using BesideSum = std::shared_ptr<DeferredGradients>;
// Runs them, once.
void RunBeside(const BesideSum& beside);

// Megatron-LM's f: returns x, which is whole on every rank; backward sums the gradient over the
// ranks, and computes what is in `beside` meanwhile (null: nothing). REQUIRES: the gradient's
// memory is used by nothing else, as that of a linear layer.
at::Tensor AllReduceBackward(const at::Tensor& x, Communicator& group,
                             const BesideSum& beside = nullptr);

// Megatron-LM's g: the sum of x [..., n] over the ranks, plus `bias` [n] unless it is null. Reuses
// the memory of x, which nothing else may use. The gradient of the result is that of each rank's x.
at::Tensor AllReduceForward(const at::Tensor& x, Parameter* bias, Communicator& group);

// Returns x; backward sums the gradient over the ranks that have the same `part` of `parts`.
at::Tensor SumGradientOfPart(const at::Tensor& x, int part, int parts, Communicator& group);

}  // namespace equipoise::ops
