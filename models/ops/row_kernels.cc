#include "models/ops/row_kernels.h"

#include <cmath>

// Built with -O3 -fopenmp-simd: the sums of `omp simd reduction` may be reordered, nothing else.
#define EQUIPOISE_CLONES __attribute__((target_clones("default", "avx2", "arch=skylake-avx512")))
#define EQUIPOISE_INLINE inline __attribute__((always_inline))

namespace equipoise::ops {
namespace {

using kernels::Load;
using kernels::Store;

template <class T>
EQUIPOISE_INLINE float Round(float x) {
  T y;
  Store(x, y);
  return Load(y);
}

// NOLINTBEGIN(readability-function-size): each operand of a kernel is a parameter.
template <class T>
EQUIPOISE_INLINE void Normalise(const Rows& rows, const T* x, const T* weight, float eps, T* y,
                                float* rstd) {
  const int64_t size = rows.size;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* from = x + row * rows.stride;
    T* to = y + row * size;
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t j = 0; j < size; ++j) squares += Load(from[j]) * Load(from[j]);
    const float scale = 1.0F / std::sqrt(squares / static_cast<float>(size) + eps);
    rstd[row] = scale;
#pragma omp simd
    for (int64_t j = 0; j < size; ++j) {
      Store(Round<T>(Load(from[j]) * scale) * Load(weight[j]), to[j]);
    }
  }
}

template <class T>
EQUIPOISE_INLINE void InputGradient(const Rows& rows, const T* g, const T* x, const T* weight,
                                    const float* rstd, T* gx) {
  const int64_t size = rows.size;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* from = x + row * rows.stride;
    const T* up = g + row * size;
    T* to = gx + row * size;
    const float scale = rstd[row];
    float along = 0;
#pragma omp simd reduction(+ : along)
    for (int64_t j = 0; j < size; ++j) along += Load(up[j]) * Load(weight[j]) * Load(from[j]);
    along *= scale * scale / static_cast<float>(size);
#pragma omp simd
    for (int64_t j = 0; j < size; ++j) {
      Store(scale * (Load(up[j]) * Load(weight[j]) - Load(from[j]) * along), to[j]);
    }
  }
}

template <class T>
EQUIPOISE_INLINE void WeightGradient(const Rows& rows, const T* g, const T* x, const float* rstd,
                                     int64_t first, int64_t last, float* gw) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* from = x + row * rows.stride;
    const T* up = g + row * rows.size;
    const float scale = rstd[row];
#pragma omp simd
    for (int64_t j = first; j < last; ++j) gw[j] += Load(up[j]) * Load(from[j]) * scale;
  }
}

template <class T>
EQUIPOISE_INLINE void AddRow(int64_t size, const T* x, float* sums) {
#pragma omp simd
  for (int64_t j = 0; j < size; ++j) sums[j] += Load(x[j]);
}

template <class T>
EQUIPOISE_INLINE void Turn(const Rows& rows, const Rotation& rotation, const T* x, T* y) {
  const int64_t half = rotation.half;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* cos = rotation.cos + row * half;
    const float* sin = rotation.sin + row * half;
    for (int64_t head = 0; head < rows.size; head += 2 * half) {
      const T* from = x + row * rows.stride + head;
      T* to = y + row * rows.size + head;
#pragma omp simd
      for (int64_t i = 0; i < half; ++i) {
        const float a = Load(from[i]), b = Load(from[i + half]);
        const float s = sin[i] * rotation.direction;
        Store(a * cos[i] - b * s, to[i]);
        Store(b * cos[i] + a * s, to[i + half]);
      }
    }
  }
}

}  // namespace

EQUIPOISE_CLONES void RmsNormRows(const Rows& rows, const float* x, const float* weight, float eps,
                                  float* y, float* rstd) {
  Normalise(rows, x, weight, eps, y, rstd);
}
EQUIPOISE_CLONES void RmsNormRows(const Rows& rows, const Bf16* x, const Bf16* weight, float eps,
                                  Bf16* y, float* rstd) {
  Normalise(rows, x, weight, eps, y, rstd);
}
EQUIPOISE_CLONES void RmsNormRows(const Rows& rows, const Fp16* x, const Fp16* weight, float eps,
                                  Fp16* y, float* rstd) {
  Normalise(rows, x, weight, eps, y, rstd);
}

EQUIPOISE_CLONES void RmsNormInputGradient(const Rows& rows, const float* g, const float* x,
                                           const float* weight, const float* rstd, float* gx) {
  InputGradient(rows, g, x, weight, rstd, gx);
}
EQUIPOISE_CLONES void RmsNormInputGradient(const Rows& rows, const Bf16* g, const Bf16* x,
                                           const Bf16* weight, const float* rstd, Bf16* gx) {
  InputGradient(rows, g, x, weight, rstd, gx);
}
EQUIPOISE_CLONES void RmsNormInputGradient(const Rows& rows, const Fp16* g, const Fp16* x,
                                           const Fp16* weight, const float* rstd, Fp16* gx) {
  InputGradient(rows, g, x, weight, rstd, gx);
}

EQUIPOISE_CLONES void RmsNormWeightGradient(const Rows& rows, const float* g, const float* x,
                                            const float* rstd, int64_t first, int64_t last,
                                            float* gw) {
  WeightGradient(rows, g, x, rstd, first, last, gw);
}
EQUIPOISE_CLONES void RmsNormWeightGradient(const Rows& rows, const Bf16* g, const Bf16* x,
                                            const float* rstd, int64_t first, int64_t last,
                                            float* gw) {
  WeightGradient(rows, g, x, rstd, first, last, gw);
}
EQUIPOISE_CLONES void RmsNormWeightGradient(const Rows& rows, const Fp16* g, const Fp16* x,
                                            const float* rstd, int64_t first, int64_t last,
                                            float* gw) {
  WeightGradient(rows, g, x, rstd, first, last, gw);
}

// NOLINTEND(readability-function-size)

EQUIPOISE_CLONES void AddRows(const Rows& rows, const Bf16* x, float* sums) {
  for (int64_t row = rows.begin; row < rows.end; ++row)
    AddRow(rows.size, x + row * rows.stride, sums);
}
EQUIPOISE_CLONES void AddRows(const Rows& rows, const Fp16* x, float* sums) {
  for (int64_t row = rows.begin; row < rows.end; ++row)
    AddRow(rows.size, x + row * rows.stride, sums);
}

EQUIPOISE_CLONES void AddElements(int64_t count, const Bf16* x, float* sums) {
  AddRow(count, x, sums);
}
EQUIPOISE_CLONES void AddElements(int64_t count, const Fp16* x, float* sums) {
  AddRow(count, x, sums);
}

EQUIPOISE_CLONES void RotateRows(const Rows& rows, const Rotation& rotation, const float* x,
                                 float* y) {
  Turn(rows, rotation, x, y);
}
EQUIPOISE_CLONES void RotateRows(const Rows& rows, const Rotation& rotation, const Bf16* x,
                                 Bf16* y) {
  Turn(rows, rotation, x, y);
}
EQUIPOISE_CLONES void RotateRows(const Rows& rows, const Rotation& rotation, const Fp16* x,
                                 Fp16* y) {
  Turn(rows, rotation, x, y);
}

}  // namespace equipoise::ops
