#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"

namespace equipoise::ops {

// RmsNorm() of each x [..., size] with its weight [size], by LibTorch's operations, so on any
// device. With `group`, x and weight are this rank's columns, and the mean is over the columns of
// all its ranks: forward and backward each do one all-reduce of a number for each row of each x.
// `weight_group` sums the weights' gradients over ranks that have other rows.
std::vector<at::Tensor> TensorParallelRmsNorm(const std::vector<at::Tensor>& xs,
                                              const std::vector<Parameter*>& weights, double eps,
                                              Communicator* group,
                                              Communicator* weight_group = nullptr);

}  // namespace equipoise::ops
