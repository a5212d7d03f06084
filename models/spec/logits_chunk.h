#pragma once

#include <algorithm>
#include <cstdint>

namespace equipoise {

// Rows of logits that the head's loss computes at a time, for its memory not to grow with rows x
// vocabulary. One source for the computation (models/ops/cross_entropy.cc) and its memory forecast.
//
// A chunk holds 64 MiB of fp32 logits on a CPU, whose caches and products want no more, and 512 MiB
// on a GPU: there each chunk reads and writes the weight's whole gradient, which small chunks do
// more often than their products take. It has at least as many rows as products need for speed.
inline int64_t LogitsChunkRows(int64_t vocabulary, bool gpu) {
  const int64_t logits = int64_t{1} << (gpu ? 27 : 24);
  return std::max<int64_t>(256, logits / vocabulary);
}

}  // namespace equipoise
