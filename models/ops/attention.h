#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/shards.h"

namespace equipoise::ops {

// Softmax attention scaled by 1 / sqrt(head_dim), without a mask in memory. Each segment is one
// kernel call, so that its result has the same bits whatever other segments there are.

// Attention within each segment, causal or of every row to every row. q [tokens, heads * head_dim];
// k and v [tokens, kv_heads * head_dim], where heads is a multiple of kv_heads: head h uses key
// head h / (heads / kv_heads).
at::Tensor PackedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const std::vector<int64_t>& cu_seqlens, int64_t head_dim,
                           bool causal = true);

// Causal attention of some rows of packed segments, of which the others are computed elsewhere:
// q [rows, heads * head_dim] has those of `ranges`, one behind the other, each within a segment; k
// and v [tokens, kv_heads * head_dim] have all.
at::Tensor AttentionOfRows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const std::vector<Range>& ranges, const std::vector<int64_t>& cu_seqlens,
                           int64_t head_dim);

// Attention without a mask: every row of a batch element sees every row of it. q, k, v
// [batch, rows, heads * head_dim].
at::Tensor FullAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         int64_t head_dim);

// Causal attention of generation. q [tokens, heads * head_dim], in segments as in
// PackedAttention(); keys[s] and values[s], [past + n, kv_heads * head_dim], are those of all
// tokens of segment s, of which the last n are its rows of q; n is 1 unless past is 0. Has no
// gradient.
at::Tensor CachedAttention(const at::Tensor& q, const std::vector<at::Tensor>& keys,
                           const std::vector<at::Tensor>& values,
                           const std::vector<int64_t>& cu_seqlens, int64_t head_dim);

}  // namespace equipoise::ops
