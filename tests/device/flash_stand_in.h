#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace equipoise::testing {

// LibTorch's flash attention over segments, for the stand-in: its signature, the checks of its
// inputs that the kernel of CUDA makes, and the same results by matrix products in fp64. Backward
// makes the probabilities again from `lse`, and needs `y`, as the kernel does.
// q [queries, heads, head_dim], k and v [keys, key heads, head_dim], bf16 or fp16; ends int32.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> FlashForward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const std::optional<at::Tensor>& q_ends, const std::optional<at::Tensor>& k_ends, int64_t max_q,
    int64_t max_k, double dropout, bool causal, bool debug, std::optional<double> scale,
    std::optional<int64_t> left, std::optional<int64_t> right,
    const std::optional<at::Tensor>& used, const std::optional<at::Tensor>& alibi);

std::tuple<at::Tensor, at::Tensor, at::Tensor> FlashBackward(
    const at::Tensor& g, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& y, const at::Tensor& lse, const at::Tensor& q_ends, const at::Tensor& k_ends,
    int64_t max_q, int64_t max_k, double dropout, bool causal, const at::Tensor& seed,
    const at::Tensor& unused, std::optional<double> scale, std::optional<int64_t> left,
    std::optional<int64_t> right);

// Calls of either so far.
int64_t FlashCalls();

}  // namespace equipoise::testing
