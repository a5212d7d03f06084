#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace equipoise::ops {

// Softmax attention scaled by 1 / sqrt(head_dim), without a mask in memory. Each segment is one
// kernel call, so that its result has the same bits whatever other segments there are.

// Causal attention within each segment. q [tokens, heads * head_dim]; k and v
// [tokens, kv_heads * head_dim], where heads is a multiple of kv_heads: head h uses key head
// h / (heads / kv_heads).
at::Tensor PackedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const std::vector<int64_t>& cu_seqlens, int64_t head_dim);

// Attention without a mask: every row of a batch element sees every row of it. q, k, v
// [batch, rows, heads * head_dim].
at::Tensor FullAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         int64_t head_dim);

// Causal attention of generation: the last n rows of k and v belong to the tokens of q. q
// [n, heads * head_dim], k and v [past + n, kv_heads * head_dim]; n is 1 unless past is 0. Has no
// gradient.
at::Tensor CachedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           int64_t head_dim);

}  // namespace equipoise::ops
