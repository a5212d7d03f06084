#include "parallel/zero/sum_of_squares.h"

namespace equipoise {

// Sums in 16 lanes, whatever the width of the vector unit. The square of a float is exact in fp64,
// so that a fused multiply-add gives the same bits as a multiplication and an addition.
__attribute__((target_clones("default", "avx2", "arch=skylake-avx512"))) double SumOfSquares(
    const float* values, int64_t count) {
  constexpr int64_t kLanes = 16;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma omp simd
    for (int64_t k = 0; k < kLanes; ++k) {
      const double value = values[i + k];
      lanes[k] += value * value;
    }
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  for (; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

}  // namespace equipoise
