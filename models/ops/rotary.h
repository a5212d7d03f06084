#pragma once

#include <ATen/core/Tensor.h>

namespace equipoise::ops {

// Rotary embedding of x [tokens, heads * 2n]: every head's pair (x[i], x[i + n]) is rotated by the
// token's angle i. cos and sin are [tokens, n] fp32.
at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace equipoise::ops
