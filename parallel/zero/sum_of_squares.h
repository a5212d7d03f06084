#pragma once

#include <cstdint>

namespace equipoise {

// Sum of the squares of `count` values, in fp64. The order of the additions, and so every bit, is
// the same on all processors. Free of LibTorch.
double SumOfSquares(const float* values, int64_t count);
// The same of kBlocksAtOnce blocks at once, which lie one behind the other; several times as fast
// where they are short. REQUIRES: `block`, their size, is a multiple of 16.
constexpr int64_t kBlocksAtOnce = 8;
void SumsOfSquares(const float* values, int64_t block, double sums[kBlocksAtOnce]);

}  // namespace equipoise
