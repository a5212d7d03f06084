#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace equipoise::ops {

// Segments of attention: segment s has queries queries[s] .. queries[s + 1] and keys keys[s] ..
// keys[s + 1]. With `causal` its last query sees all of its keys, and each earlier query one key
// less than the next.
struct AttentionSegments {
  std::vector<int64_t> queries, keys;
  bool causal = false;
};

// Softmax attention scaled by 1 / sqrt(head_dim), within segments, for tensors that are not on the
// CPU. q [queries, heads * head_dim], k and v [keys, kv_heads * head_dim]; query head h uses key
// head h / (heads / kv_heads). For 16 bits on CUDA one call of LibTorch's flash kernel, or of
// cuDNN's; else matrix products in fp32, segment by segment, whose backward recomputes the
// probabilities.
//
// cuDNN's is taken where LibTorch's own settings ask for it: for segments of one length without a
// mask (tiles), where it stands before flash attention in at::Context::sDPPriorityOrder().
at::Tensor DeviceAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionSegments& segments, int64_t head_dim);

}  // namespace equipoise::ops
