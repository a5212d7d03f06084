#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"

namespace equipoise::ops {

struct Targets {
  at::Tensor ids;      // [rows] int64, each within the vocabulary
  at::Tensor weights;  // [rows] fp32; undefined = all 1
  double scale = 1;    // of the whole sum
};

// logits = x weight' with x [rows, hidden] and weight [vocabulary, hidden]; returns the fp64 scalar
// scale * sum of weight * cross entropy, the softmax in fp32. Goes through the rows in chunks, so
// that the logits never exist at once. Where gradients are enabled the same pass makes the gradient
// of x (kept for backward, which therefore costs nothing) and adds the weight's own.
//
// `in_backward` puts off adding the weight's gradient, kept until then at the weight's size, for a
// weight that other operations add to: then the order of the sums, and so its bits, depends on the
// order of backward passes alone.
//
// With a group, the weight's rows are split over its ranks, all of which have x and the targets;
// loss and gradient of x are whole on each.
at::Tensor LinearCrossEntropy(const at::Tensor& x, const Targets& targets, Parameter& weight,
                              bool in_backward, Communicator* group = nullptr);

}  // namespace equipoise::ops
