#pragma once

#include <cstdint>
#include <vector>

#include "parallel/kernels/bf16.h"

namespace equipoise::ops {

// Softmax attention of short segments on the CPU, scaled by 1 / sqrt(head_dim), where LibTorch's
// flash kernel would mostly wait for small products of MKL. bf16 in memory, everything between in
// fp32. LibTorch-free. REQUIRES: AVX-512, as where AvoidsMkl() (matrix_product.h).

using kernels::Bf16;

// Longest segment: beyond it a head's scores leave the core's caches.
constexpr int64_t kShortAttentionRows = 128;

// Row i begins at data + i * stride.
template <class T>
struct HeadRows {
  T* data = nullptr;
  int64_t stride = 0;
};

// A segment's rows of one key head and of the query heads that use it, which lie one behind the
// other: head_dim columns each.
struct ShortSegment {
  int64_t rows, head_dim;
  int64_t query_heads;
  bool causal;
  HeadRows<const Bf16> q, k, v;
};

// Memory that calls of one thread use one after the other. It is cleared where a call's matrices
// have other sizes than those of the call before: no call writes beside its rows and columns.
struct ShortAttentionMemory {
  std::vector<float> floats;
  int64_t rows = 0, columns = 0;
};

// The result y, as q.
void ShortAttention(const ShortSegment& segment, HeadRows<Bf16> y, ShortAttentionMemory& memory);

// The gradients of q, k and v for the gradient g of y; the probabilities are computed again.
struct ShortGradients {
  HeadRows<const Bf16> g;
  HeadRows<Bf16> q, k, v;
};
void ShortAttentionBackward(const ShortSegment& segment, const ShortGradients& gradients,
                            ShortAttentionMemory& memory);

}  // namespace equipoise::ops
