#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace equipoise::testing {

// cuDNN's attention for the stand-in of GPUs: the signatures of LibTorch's schema, checks of the
// inputs, and the same results as flash attention's stand-in. Backward needs the result, the sums
// of exponentials and the random state of forward in cuDNN's own shapes.

// Result, sums of exponentials, ends of the segments (undefined), longest segments, seed and offset
// of the random state, debug mask.
using CudnnResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt,
                               c10::SymInt, at::Tensor, at::Tensor, at::Tensor>;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// q [tiles, heads, rows, head_dim]; sums [tiles, heads, rows, 1] fp32.
CudnnResult CudnnTilesForward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::optional<at::Tensor>& bias, bool sums, double dropout,
                              bool causal, bool debug, std::optional<double> scale);
Gradients CudnnTilesBackward(const at::Tensor& g, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const at::Tensor& y, const at::Tensor& lse,
                             const at::Tensor& seed, const at::Tensor& offset,
                             const at::Tensor& bias, const at::Tensor& q_ends,
                             const at::Tensor& k_ends, c10::SymInt max_q, c10::SymInt max_k,
                             double dropout, bool causal, std::optional<double> scale);

}  // namespace equipoise::testing
