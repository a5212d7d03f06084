#pragma once

#include <cstdint>

namespace equipoise {

// Sum of the squares of `count` values, in fp64. The order of the additions, and so every bit, is
// the same on all processors. Free of LibTorch.
double SumOfSquares(const float* values, int64_t count);

}  // namespace equipoise
