#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"

namespace equipoise::ops {

// RmsNorm() of each x [..., size] with its weight [size], out of LibTorch's operations and so on
// any device. With a group, x and weight are this rank's columns, and the mean is over those of all
// its ranks: forward and backward exchange one number for each row of each x, all at once. A
// `weight_group` sums the weights' gradients over ranks that have other rows.
std::vector<at::Tensor> TensorParallelRmsNorm(const std::vector<at::Tensor>& xs,
                                              const std::vector<Parameter*>& weights, double eps,
                                              Communicator* group,
                                              Communicator* weight_group = nullptr);

}  // namespace equipoise::ops
