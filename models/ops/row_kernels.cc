#include "models/ops/row_kernels.h"

#include <cmath>
#include <limits>

#include "models/ops/exponential.h"

// Built with -O3 -fopenmp-simd: the sums of `omp simd reduction` may be reordered, nothing else.
#define EQUIPOISE_CLONES __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
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
EQUIPOISE_INLINE void LayerNormalise(const Rows& rows, const T* x, const T* weight, const T* bias,
                                     float eps, T* y, const LayerNormStatistics& statistics) {
  const int64_t size = rows.size;
  const float share = 1.0F / static_cast<float>(size);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* from = x + row * rows.stride;
    T* to = y + row * size;
    float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < size; ++j) sum += Load(from[j]);
    const float mean = sum * share;
#pragma omp simd reduction(+ : squares)
    for (int64_t j = 0; j < size; ++j) squares += (Load(from[j]) - mean) * (Load(from[j]) - mean);
    const float scale = 1.0F / std::sqrt(squares * share + eps);
    statistics.mean[row] = mean;
    statistics.rstd[row] = scale;
#pragma omp simd
    for (int64_t j = 0; j < size; ++j)
      Store((Load(from[j]) - mean) * scale * Load(weight[j]) + Load(bias[j]), to[j]);
  }
}

template <class T>
EQUIPOISE_INLINE void LayerNormGradient(const Rows& rows, const T* g, const T* x, const T* weight,
                                        const LayerNormStatistics& statistics, T* gx) {
  const int64_t size = rows.size;
  const float share = 1.0F / static_cast<float>(size);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* from = x + row * rows.stride;
    const T* up = g + row * size;
    T* to = gx + row * size;
    const float mean = statistics.mean[row], scale = statistics.rstd[row];
    float sum = 0, along = 0;
#pragma omp simd reduction(+ : sum, along)
    for (int64_t j = 0; j < size; ++j) {
      const float weighted = Load(up[j]) * Load(weight[j]);
      sum += weighted;
      along += weighted * (Load(from[j]) - mean);
    }
    sum *= share;
    along *= share * scale * scale;
#pragma omp simd
    for (int64_t j = 0; j < size; ++j) {
      const float weighted = Load(up[j]) * Load(weight[j]);
      Store(scale * (weighted - sum - (Load(from[j]) - mean) * along), to[j]);
    }
  }
}

template <class T>
EQUIPOISE_INLINE void LayerNormSums(const Rows& rows, const T* g, const T* x,
                                    const LayerNormStatistics& statistics, int64_t first,
                                    int64_t last, float* gw, float* gb) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* from = x + row * rows.stride;
    const T* up = g + row * rows.size;
    const float mean = statistics.mean[row], scale = statistics.rstd[row];
#pragma omp simd
    for (int64_t j = first; j < last; ++j) {
      gw[j] += Load(up[j]) * (Load(from[j]) - mean) * scale;
      gb[j] += Load(up[j]);
    }
  }
}

// 1 / (1 + e^-x)
EQUIPOISE_INLINE float Sigmoid(float x) {
  const float e = ExpOfNegative(x < 0 ? x : -x);
  return (x < 0 ? e : 1.0F) / (1.0F + e);
}

template <class T>
EQUIPOISE_INLINE void Gate(const Rows& rows, const T* gate_up, T* y) {
  const int64_t size = rows.size;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* gate = gate_up + row * rows.stride;
    const T* up = gate + size;
    T* to = y + row * size;
#pragma omp simd
    for (int64_t j = 0; j < size; ++j)
      Store(Load(gate[j]) * Sigmoid(Load(gate[j])) * Load(up[j]), to[j]);
  }
}

template <class T>
EQUIPOISE_INLINE void GateGradient(const Rows& rows, const T* g, const T* gate_up, T* out) {
  const int64_t size = rows.size;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* gate = gate_up + row * rows.stride;
    const T* up = gate + size;
    const T* above = g + row * size;
    T* of_gate = out + row * 2 * size;
    T* of_up = of_gate + size;
#pragma omp simd
    for (int64_t j = 0; j < size; ++j) {
      const float sigmoid = Sigmoid(Load(gate[j])), silu = Load(gate[j]) * sigmoid;
      Store(Load(above[j]) * Load(up[j]) * (sigmoid + silu * (1.0F - sigmoid)), of_gate[j]);
      Store(Load(above[j]) * silu, of_up[j]);
    }
  }
}

// The normal distribution's Phi(x), to a relative error of 5e-7 on both sides, and e^(-x^2 / 2).
struct Normal {
  float share, bell;
};
// Phi(-|x|) = t q(t) bell with t = 1 / (1 + 0.4 |x| / sqrt(2)): q was fitted to erfcx(z) / 2t,
// least in its largest relative error, 1.3e-7, for all t in (0, 1].
EQUIPOISE_INLINE Normal NormalAt(float x) {
  const float t = 1.0F / (1.0F + 0.282842712F * (x < 0 ? -x : x));
  float q = (0.0502616867F * t - 0.182899832F) * t + 0.169082978F;
  q = ((q * t - 0.00560563998F) * t + 0.141430633F) * t + 0.168542159F;
  q = ((q * t + 0.207842679F) * t + 0.225669599F) * t + 0.225675862F;
  const float bell = ExpOfNegative(-0.5F * x * x), beyond = 0.5F * t * q * bell;
  return {x < 0 ? beyond : 1.0F - beyond, bell};
}

template <class T>
EQUIPOISE_INLINE void TakeGelu(int64_t count, const T* x, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) Store(Load(x[i]) * NormalAt(Load(x[i])).share, y[i]);
}

template <class T>
EQUIPOISE_INLINE void TakeGeluGradient(int64_t count, const T* g, const T* x, T* gx) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float at = Load(x[i]);
    const Normal normal = NormalAt(at);
    Store(Load(g[i]) * (normal.share + at * 0.39894228F * normal.bell), gx[i]);
  }
}

template <class T>
EQUIPOISE_INLINE void Scale(const Rows& rows, const T* base, const T* x, const T* scale, T* y) {
  const int64_t size = rows.size;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* from = x + row * rows.stride;
    T* to = y + row * size;
    if (base == nullptr) {
#pragma omp simd
      for (int64_t j = 0; j < size; ++j) Store(Load(from[j]) * Load(scale[j]), to[j]);
      continue;
    }
    const T* added = base + row * size;
#pragma omp simd
    for (int64_t j = 0; j < size; ++j)
      Store(Load(from[j]) * Load(scale[j]) + Load(added[j]), to[j]);
  }
}

template <class T>
EQUIPOISE_INLINE void AddProducts(const Rows& rows, const T* g, const T* x, int64_t first,
                                  int64_t last, float* sums) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* from = x + row * rows.stride;
    const T* up = g + row * rows.size;
#pragma omp simd
    for (int64_t j = first; j < last; ++j) sums[j] += Load(up[j]) * Load(from[j]);
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

EQUIPOISE_CLONES void LayerNormRows(const Rows& rows, const Bf16* x, const Bf16* weight,
                                    const Bf16* bias, float eps, Bf16* y,
                                    const LayerNormStatistics& statistics) {
  LayerNormalise(rows, x, weight, bias, eps, y, statistics);
}
EQUIPOISE_CLONES void LayerNormInputGradient(const Rows& rows, const Bf16* g, const Bf16* x,
                                             const Bf16* weight,
                                             const LayerNormStatistics& statistics, Bf16* gx) {
  LayerNormGradient(rows, g, x, weight, statistics, gx);
}
EQUIPOISE_CLONES void LayerNormWeightGradients(const Rows& rows, const Bf16* g, const Bf16* x,
                                               const LayerNormStatistics& statistics, int64_t first,
                                               int64_t last, float* gw, float* gb) {
  LayerNormSums(rows, g, x, statistics, first, last, gw, gb);
}
EQUIPOISE_CLONES void SwiGluRows(const Rows& rows, const Bf16* gate_up, Bf16* y) {
  Gate(rows, gate_up, y);
}
EQUIPOISE_CLONES void SwiGluGradientRows(const Rows& rows, const Bf16* g, const Bf16* gate_up,
                                         Bf16* out) {
  GateGradient(rows, g, gate_up, out);
}
EQUIPOISE_CLONES void GeluElements(int64_t count, const Bf16* x, Bf16* y) { TakeGelu(count, x, y); }
EQUIPOISE_CLONES void GeluGradientElements(int64_t count, const Bf16* g, const Bf16* x, Bf16* gx) {
  TakeGeluGradient(count, g, x, gx);
}
EQUIPOISE_CLONES void SoftmaxRows(const Rows& rows, Bf16* x, float scale, float* memory) {
  // In whole vectors, as exponentials of single elements take as long as those of 16: what fills
  // the last one weighs nothing.
  const int64_t padded = SoftmaxMemory(rows.size);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    Bf16* to = x + row * rows.stride;
#pragma omp simd
    for (int64_t j = 0; j < rows.size; ++j) memory[j] = Load(to[j]);
    for (int64_t j = rows.size; j < padded; ++j) memory[j] = -std::numeric_limits<float>::max();
    float most = memory[0], sum = 0;
#pragma omp simd reduction(max : most)
    for (int64_t j = 0; j < padded; ++j) most = memory[j] > most ? memory[j] : most;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < padded; ++j) {
      memory[j] = ExpOfNegative(scale * (memory[j] - most));
      sum += memory[j];
    }
    const float share = 1.0F / sum;
#pragma omp simd
    for (int64_t j = 0; j < rows.size; ++j) Store(share * memory[j], to[j]);
  }
}
EQUIPOISE_CLONES void SoftmaxGradientRows(const Rows& rows, const Bf16* p, float scale, Bf16* g) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const Bf16* share = p + row * rows.size;
    Bf16* to = g + row * rows.stride;
    float along = 0;
#pragma omp simd reduction(+ : along)
    for (int64_t j = 0; j < rows.size; ++j) along += Load(to[j]) * Load(share[j]);
#pragma omp simd
    for (int64_t j = 0; j < rows.size; ++j)
      Store(scale * Load(share[j]) * (Load(to[j]) - along), to[j]);
  }
}
EQUIPOISE_CLONES void ScaleRows(const Rows& rows, const Bf16* base, const Bf16* x,
                                const Bf16* scale, Bf16* y) {
  Scale(rows, base, x, scale, y);
}
EQUIPOISE_CLONES void AddProductsOfRows(const Rows& rows, const Bf16* g, const Bf16* x,
                                        int64_t first, int64_t last, float* sums) {
  AddProducts(rows, g, x, first, last, sums);
}

EQUIPOISE_CLONES void LayerNormRows(const Rows& rows, const Fp16* x, const Fp16* weight,
                                    const Fp16* bias, float eps, Fp16* y,
                                    const LayerNormStatistics& statistics) {
  LayerNormalise(rows, x, weight, bias, eps, y, statistics);
}
EQUIPOISE_CLONES void LayerNormInputGradient(const Rows& rows, const Fp16* g, const Fp16* x,
                                             const Fp16* weight,
                                             const LayerNormStatistics& statistics, Fp16* gx) {
  LayerNormGradient(rows, g, x, weight, statistics, gx);
}
EQUIPOISE_CLONES void LayerNormWeightGradients(const Rows& rows, const Fp16* g, const Fp16* x,
                                               const LayerNormStatistics& statistics, int64_t first,
                                               int64_t last, float* gw, float* gb) {
  LayerNormSums(rows, g, x, statistics, first, last, gw, gb);
}
EQUIPOISE_CLONES void SwiGluRows(const Rows& rows, const Fp16* gate_up, Fp16* y) {
  Gate(rows, gate_up, y);
}
EQUIPOISE_CLONES void SwiGluGradientRows(const Rows& rows, const Fp16* g, const Fp16* gate_up,
                                         Fp16* out) {
  GateGradient(rows, g, gate_up, out);
}
EQUIPOISE_CLONES void GeluElements(int64_t count, const Fp16* x, Fp16* y) { TakeGelu(count, x, y); }
EQUIPOISE_CLONES void GeluGradientElements(int64_t count, const Fp16* g, const Fp16* x, Fp16* gx) {
  TakeGeluGradient(count, g, x, gx);
}
EQUIPOISE_CLONES void ScaleRows(const Rows& rows, const Fp16* base, const Fp16* x,
                                const Fp16* scale, Fp16* y) {
  Scale(rows, base, x, scale, y);
}
EQUIPOISE_CLONES void AddProductsOfRows(const Rows& rows, const Fp16* g, const Fp16* x,
                                        int64_t first, int64_t last, float* sums) {
  AddProducts(rows, g, x, first, last, sums);
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
