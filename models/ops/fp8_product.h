#pragma once

#include <ATen/core/Tensor.h>

namespace equipoise::ops {

// Products of matrices in fp8 (train.fp8), for linear layers: each row of either factor is rounded
// to e4m3 with a scale of its own (torchao's row-wise recipe), products are added in fp32 and the
// result is rounded to the factors' dtype once. On GPUs by LibTorch's scaled product; elsewhere
// codes are multiplied in fp32, for tests. A row's scale depends on that row alone, so a result
// does on neither the micro-batch nor the mesh, but where tensor ranks split rows.

// Rows of either factor.
struct Fp8Rows {
  at::Tensor codes;   // [rows, n], e4m3
  at::Tensor scales;  // [rows, 1], fp32
};

// x [rows, n], bf16.
Fp8Rows RoundRowsToFp8(const at::Tensor& x);

// x [rows, n] times weight' [m, n], plus bias [m] (undefined: none): [rows, m]. bf16; n and m are
// multiples of 16.
at::Tensor Fp8Product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// Whether a weight of this shape can be a factor of such products, forward and backward.
bool SuitsFp8(at::IntArrayRef shape);

}  // namespace equipoise::ops
