#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace equipoise::ops {

// Softmax attention scaled by 1 / sqrt(head_dim), without a mask in memory. One kernel call for
// each segment, so a segment's result has the same bits whatever its neighbours are.

// Causal within each segment. q [tokens, heads * head_dim]; k and v [tokens, kv_heads * head_dim],
// where heads is a multiple of kv_heads: head h uses key head h / (heads / kv_heads).
at::Tensor PackedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const std::vector<int64_t>& cu_seqlens, int64_t head_dim);

// Every row of a batch element sees every other. q, k, v [batch, rows, heads * head_dim].
at::Tensor FullAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         int64_t head_dim);

// Generation: the last q.size(0) rows of the keys are q's own. q [n, heads * head_dim], k and v
// [past + n, kv_heads * head_dim]; n is 1 unless past is 0. Records nothing.
at::Tensor CachedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           int64_t head_dim);

}  // namespace equipoise::ops
