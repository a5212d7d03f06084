#pragma once

#include <cstdint>

namespace equipoise {

// Of `count` values, in fp64. The order of the additions, and so every bit, is the same on all
// processors. LibTorch-free.
double SumOfSquares(const float* values, int64_t count);

}  // namespace equipoise
