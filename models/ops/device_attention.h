#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace equipoise::ops {

// Segment s has queries queries[s] .. queries[s + 1] and keys keys[s] .. keys[s + 1]; with `causal`
// its last query sees all of its keys, and each query before it one key less.
struct AttentionSegments {
  std::vector<int64_t> queries, keys;
  bool causal = false;
};

// Softmax attention scaled by 1 / sqrt(head_dim), within segments, for tensors that are not on the
// CPU. q [queries, heads * head_dim], k and v [keys, kv_heads * head_dim]; query head h uses key
// head h / (heads / kv_heads). On CUDA in 16 bits one call of LibTorch's flash kernel; else matrix
// products in fp32, segment by segment, of which backward makes the probabilities again.
at::Tensor DeviceAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionSegments& segments, int64_t head_dim);

}  // namespace equipoise::ops
