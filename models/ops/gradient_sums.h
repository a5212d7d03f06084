#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace equipoise::ops {

// Sums that backward passes add to fp32 gradients. For bf16 and fp16 on the CPU each is one pass,
// where ATen makes an fp32 copy first.

// gradient += d. REQUIRES: equal shapes, `gradient` in fp32.
void AddTo(const at::Tensor& gradient, const at::Tensor& d);

// gradient += g' x, where g is [rows, out], x [rows, in] of one dtype and `gradient` [out, in] in
// fp32. On a GPU, and on a CPU with bf16 products of oneDNN's, the product is added as it is
// computed, in fp32; on other CPUs a 16-bit product is rounded before it is added.
void AddProduct(const at::Tensor& gradient, const at::Tensor& g, const at::Tensor& x);

// The sum of the rows of g [rows, n]: fp32 [n], with bits that do not depend on the number of
// threads.
at::Tensor SumOfRows(const at::Tensor& g);

// What a weight that stands beside rows was multiplied with: x [rows, n], or (x - mean) * rstd with
// `mean` and `rstd` [rows]; undefined ones are left out.
struct WeightedRows {
  at::Tensor x, mean, rstd;
};
struct ColumnSums {
  at::Tensor weighted, plain;  // fp32 [n]; `plain` undefined where it is not wanted
};
// The sums of the rows of g [rows, n] times what its weight was multiplied with, and of g itself
// where `plain` says so: gradients of layer scale and of norms' weights and biases, by one launch
// that reads g and x once. Nothing where g is not on a GPU, or own kernels are not loaded.
std::optional<ColumnSums> OwnColumnSums(const at::Tensor& g, const WeightedRows& rows, bool plain);

}  // namespace equipoise::ops
