#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace equipoise::ops {

// Rotary embedding of x [tokens, heads * head_dim]: of every head's first 2n elements the pair
// (x[i], x[i + n]) is rotated by the token's angle i; others stay. cos and sin are [tokens, n]
// fp32.
at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                  int64_t head_dim);
// Of heads that turn as a whole.
inline at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  return Rotate(x, cos, sin, 2 * cos.size(1));
}

}  // namespace equipoise::ops
