#include "parallel/zero/sum_of_squares.h"

// The square of a float is exact in fp64, so that a fused multiply-add gives the same bits as a
// multiplication and an addition.
#define EQUIPOISE_CLONES __attribute__((target_clones("default", "avx2", "arch=skylake-avx512")))

namespace equipoise {
namespace {

constexpr int64_t kLanes = 16;  // of sums, whatever the width of the vector unit

}  // namespace

EQUIPOISE_CLONES double SumOfSquares(const float* values, int64_t count) {
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

EQUIPOISE_CLONES void SumsOfSquares(const float* values, int64_t block,
                                    double sums[kBlocksAtOnce]) {
  double lanes[kBlocksAtOnce][kLanes];
  for (int64_t b = 0; b < kBlocksAtOnce; ++b) {
    const float* const from = values + b * block;
    double own[kLanes] = {};
    for (int64_t i = 0; i < block; i += kLanes) {
#pragma omp simd
      for (int64_t k = 0; k < kLanes; ++k) {
        const double value = from[i + k];
        own[k] += value * value;
      }
    }
    for (int64_t k = 0; k < kLanes; ++k) lanes[b][k] = own[k];
  }
  // The blocks' chains of additions run beside each other.
  double all[kBlocksAtOnce] = {};
  for (int64_t k = 0; k < kLanes; ++k) {
    for (int64_t b = 0; b < kBlocksAtOnce; ++b) all[b] += lanes[b][k];
  }
  for (int64_t b = 0; b < kBlocksAtOnce; ++b) sums[b] = all[b];
}

}  // namespace equipoise
