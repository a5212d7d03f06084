#pragma once

#include <cstdint>

#include "parallel/kernels/bf16.h"
#include "parallel/kernels/fp16.h"

namespace equipoise::ops {

// Fused passes over rows for the CPU, where a chain of small ATen kernels would cost more than the
// matrix products. Compiled for several instruction sets, one of which is chosen when the program
// starts. LibTorch-free.

using kernels::Bf16;
using kernels::Fp16;

// Rows `begin` to `end` - 1. Row i of x begins at x + i * stride; rows of other arrays are
// contiguous.
struct Rows {
  int64_t begin, end;
  int64_t size;    // elements of a row
  int64_t stride;  // of x
};

// RMSNorm: y = round(x * rstd) * weight with rstd = 1 / sqrt(mean(x^2) + eps), stored in rstd[row].
void RmsNormRows(const Rows& rows, const float* x, const float* weight, float eps, float* y,
                 float* rstd);
void RmsNormRows(const Rows& rows, const Bf16* x, const Bf16* weight, float eps, Bf16* y,
                 float* rstd);
void RmsNormRows(const Rows& rows, const Fp16* x, const Fp16* weight, float eps, Fp16* y,
                 float* rstd);

// The gradient gx of x for the gradient g of y.
void RmsNormInputGradient(const Rows& rows, const float* g, const float* x, const float* weight,
                          const float* rstd, float* gx);
void RmsNormInputGradient(const Rows& rows, const Bf16* g, const Bf16* x, const Bf16* weight,
                          const float* rstd, Bf16* gx);
void RmsNormInputGradient(const Rows& rows, const Fp16* g, const Fp16* x, const Fp16* weight,
                          const float* rstd, Fp16* gx);

// The gradient of the weight: gw[j] += sum over rows of g * x * rstd, for columns [first, last).
void RmsNormWeightGradient(const Rows& rows, const float* g, const float* x, const float* rstd,
                           int64_t first, int64_t last, float* gw);
void RmsNormWeightGradient(const Rows& rows, const Bf16* g, const Bf16* x, const float* rstd,
                           int64_t first, int64_t last, float* gw);
void RmsNormWeightGradient(const Rows& rows, const Fp16* g, const Fp16* x, const float* rstd,
                           int64_t first, int64_t last, float* gw);

// LayerNorm of 16-bit rows: y = (x - mean) * rstd * weight + bias in fp32, rounded once, with the
// row's mean and rstd = 1 / sqrt(mean((x - mean)^2) + eps) stored in mean[row] and rstd[row].
struct LayerNormStatistics {
  float* mean;
  float* rstd;
};
void LayerNormRows(const Rows& rows, const Bf16* x, const Bf16* weight, const Bf16* bias, float eps,
                   Bf16* y, const LayerNormStatistics& statistics);
void LayerNormRows(const Rows& rows, const Fp16* x, const Fp16* weight, const Fp16* bias, float eps,
                   Fp16* y, const LayerNormStatistics& statistics);

// The gradient gx of x for the gradient g of y.
void LayerNormInputGradient(const Rows& rows, const Bf16* g, const Bf16* x, const Bf16* weight,
                            const LayerNormStatistics& statistics, Bf16* gx);
void LayerNormInputGradient(const Rows& rows, const Fp16* g, const Fp16* x, const Fp16* weight,
                            const LayerNormStatistics& statistics, Fp16* gx);

// The gradients of weight and bias, for columns [first, last): gw[j] += the sum over rows of
// g * (x - mean) * rstd, gb[j] += that of g.
void LayerNormWeightGradients(const Rows& rows, const Bf16* g, const Bf16* x,
                              const LayerNormStatistics& statistics, int64_t first, int64_t last,
                              float* gw, float* gb);
void LayerNormWeightGradients(const Rows& rows, const Fp16* g, const Fp16* x,
                              const LayerNormStatistics& statistics, int64_t first, int64_t last,
                              float* gw, float* gb);

// SwiGLU of 16-bit rows, in fp32 and rounded once: y = silu(gate) * up, where a row of gate_up has
// `size` gates and then as many ups.
void SwiGluRows(const Rows& rows, const Bf16* gate_up, Bf16* y);
void SwiGluRows(const Rows& rows, const Fp16* gate_up, Fp16* y);
// The gradient of gate_up, contiguous rows of 2 * size, for the gradient g of y.
void SwiGluGradientRows(const Rows& rows, const Bf16* g, const Bf16* gate_up, Bf16* out);
void SwiGluGradientRows(const Rows& rows, const Fp16* g, const Fp16* gate_up, Fp16* out);

// GELU of 16-bit elements, y = x Phi(x), in fp32 and rounded once; and the gradient gx of x for the
// gradient g of y.
void GeluElements(int64_t count, const Bf16* x, Bf16* y);
void GeluElements(int64_t count, const Fp16* x, Fp16* y);
void GeluGradientElements(int64_t count, const Bf16* g, const Bf16* x, Bf16* gx);
void GeluGradientElements(int64_t count, const Fp16* g, const Fp16* x, Fp16* gx);

// Softmax of scale * x, in place, in fp32 and rounded once; memory: SoftmaxMemory(size) floats.
// And, in place of the gradient g of its result p, that of x: scale * p * (g - sum of g p).
constexpr int64_t SoftmaxMemory(int64_t size) { return (size + 15) / 16 * 16; }
void SoftmaxRows(const Rows& rows, Bf16* x, float scale, float* memory);
void SoftmaxGradientRows(const Rows& rows, const Bf16* p, float scale, Bf16* g);

// Layer scale of 16-bit rows, in fp32 and rounded once: y = x * scale, + base where it is given.
void ScaleRows(const Rows& rows, const Bf16* base, const Bf16* x, const Bf16* scale, Bf16* y);
void ScaleRows(const Rows& rows, const Fp16* base, const Fp16* x, const Fp16* scale, Fp16* y);
// The gradient of the scale: sums[j] += the sum over rows of g * x, for columns [first, last).
void AddProductsOfRows(const Rows& rows, const Bf16* g, const Bf16* x, int64_t first, int64_t last,
                       float* sums);
void AddProductsOfRows(const Rows& rows, const Fp16* g, const Fp16* x, int64_t first, int64_t last,
                       float* sums);

// sums[j] += the sum over rows of x, for every column j.
void AddRows(const Rows& rows, const Bf16* x, float* sums);
void AddRows(const Rows& rows, const Fp16* x, float* sums);

// sums[i] += x[i]
void AddElements(int64_t count, const Bf16* x, float* sums);
void AddElements(int64_t count, const Fp16* x, float* sums);

// Rotation of every head's pairs (x[i], x[i + half]) of a row by the row's angles: cos and sin are
// [rows, half]; `direction` -1 is the inverse. `size` of the rows is heads * 2 * half.
struct Rotation {
  const float* cos;
  const float* sin;
  int64_t half;
  float direction;
};
void RotateRows(const Rows& rows, const Rotation& rotation, const float* x, float* y);
void RotateRows(const Rows& rows, const Rotation& rotation, const Bf16* x, Bf16* y);
void RotateRows(const Rows& rows, const Rotation& rotation, const Fp16* x, Fp16* y);

}  // namespace equipoise::ops
