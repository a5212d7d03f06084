#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"

namespace equipoise::ops {

struct Targets {
  at::Tensor ids;      // [rows] int64, each within the vocabulary
  at::Tensor weights;  // [rows] fp32; undefined: all 1
  double scale = 1;    // factor of the loss
};

// Cross entropy of logits = x weight', with x [rows, hidden] and weight [vocabulary, hidden].
// Returns the fp64 scalar scale * sum of weight * cross entropy; the softmax is in fp32. Rows are
// computed in chunks, so that never all logits are in memory. Where gradients are enabled, the same
// pass computes the gradient of x, which is saved (backward then costs nothing), and adds that of
// the weight.
//
// `in_backward` saves the weight's gradient, in fp32, and adds it in backward. For a
// weight that other operations add to as well: the order of the sums, and so their bits, then
// depends on the order of backward passes only.
//
// With `group`, the weight's rows are split over its ranks, which all have x and the targets; loss
// and gradient of x are whole on each rank.
at::Tensor LinearCrossEntropy(const at::Tensor& x, const Targets& targets, Parameter& weight,
                              bool in_backward, Communicator* group = nullptr);

}  // namespace equipoise::ops
