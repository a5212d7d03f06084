#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/parameter.h"

namespace equipoise::ops {

// For each of n rows the four rows of a table of which it is the weighted sum.
struct Interpolation {
  at::Tensor corners;  // [4, n] int64
  at::Tensor weights;  // [4, n] fp32
};

// x [n, hidden] plus interpolated rows of `table` [positions, hidden]. The sum of the four is fp32
// and rounded once to the dtype of x.
at::Tensor AddInterpolated(const at::Tensor& x, const Interpolation& rows, Parameter& table);

}  // namespace equipoise::ops
