#include "models/ops/short_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "models/ops/exponential.h"

// The factors of a head are widened to fp32 once, with zeros up to whole vectors; all products are
// then tiles of 8 rows by 16 columns, whose sums stay in registers: 8 independent chains of
// multiply-adds, a load of one vector for each 8. What a causal mask hides is left out by blocks of
// 8 queries.

// Vectors are lowered before functions are cloned or inlined: each function names its target.
#if defined(__x86_64__)
#define EQUIPOISE_WIDE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#else
#define EQUIPOISE_WIDE
#endif
#define EQUIPOISE_INLINE EQUIPOISE_WIDE inline __attribute__((always_inline))

namespace equipoise::ops {
namespace {

using kernels::Load;
using kernels::Store;

constexpr int64_t kRows = 8, kLanes = 16;

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

// c = a b, or c += a b, for a [8, terms], element (i, t) at a[i * down + t * right], and 16 columns
// of b [terms, ..] and c [8, ..].
struct Factor {
  const float* data;
  int64_t down, right;
};
struct Matrix {
  float* data;
  int64_t stride;
};

EQUIPOISE_INLINE void Tile(const Factor& a, const Matrix& b, int64_t terms, const Matrix& c,
                           bool add) {
  Lanes sums[kRows] = {};
  if (add) {
    for (int i = 0; i < kRows; ++i) std::memcpy(&sums[i], c.data + i * c.stride, sizeof(Lanes));
  }
  for (int64_t t = 0; t < terms; ++t) {
    Lanes row;
    std::memcpy(&row, b.data + t * b.stride, sizeof(Lanes));
    for (int i = 0; i < kRows; ++i) sums[i] += a.data[i * a.down + t * a.right] * row;
  }
  for (int i = 0; i < kRows; ++i) std::memcpy(c.data + i * c.stride, &sums[i], sizeof(Lanes));
}

// Rows [row, row + 8) of c [.., columns], of terms [first, last).
struct Block {
  int64_t row, first, last, columns;
};
EQUIPOISE_INLINE void Product(const Block& block, const Factor& a, const Matrix& b, const Matrix& c,
                              bool add) {
  const Factor left = {a.data + block.row * a.down + block.first * a.right, a.down, a.right};
  for (int64_t j = 0; j < block.columns; j += kLanes) {
    Tile(left, {b.data + block.first * b.stride + j, b.stride}, block.last - block.first,
         {c.data + block.row * c.stride + j, c.stride}, add);
  }
}

// The matrices of a head in `memory`, with zeros beyond its rows and columns.
struct Head {
  int64_t rows, columns;          // of the segment
  int64_t height, padded, width;  // rows rounded up to 8 and to 16, columns to 16
  bool causal;
  float scale;
  Matrix q, k, v, g, gq, gk, gv;  // [padded, width]
  Matrix k_t, v_t;                // [width, padded]
  Matrix p, d;                    // [padded, padded]

  Head(const ShortSegment& segment, ShortAttentionMemory& memory)
      : rows(segment.rows),
        columns(segment.head_dim),
        height(RoundUp(rows, kRows)),
        padded(RoundUp(rows, kLanes)),
        width(RoundUp(columns, kLanes)),
        causal(segment.causal),
        scale(1.0F / std::sqrt(static_cast<float>(columns))) {
    if (memory.rows != rows || memory.columns != columns) {
      memory.floats.assign(static_cast<size_t>(9 * padded * width + 2 * padded * padded), 0.0F);
      memory.rows = rows, memory.columns = columns;
    }
    float* next = memory.floats.data();
    const auto take = [&](int64_t stride, int64_t size) {
      const Matrix matrix = {next, stride};
      next += size;
      return matrix;
    };
    for (Matrix* m : {&q, &k, &v, &g, &gq, &gk, &gv}) *m = take(width, padded * width);
    for (Matrix* m : {&k_t, &v_t}) *m = take(padded, padded * width);
    for (Matrix* m : {&p, &d}) *m = take(padded, padded * padded);
  }
  // Keys that the last of 8 queries from `row` on sees, and the first query that sees such keys.
  int64_t SeenFrom(int64_t row) const { return causal ? std::min(row + kRows, rows) : rows; }
  int64_t FirstSeeing(int64_t row) const { return causal ? row : 0; }
};

EQUIPOISE_INLINE void Widen(const Head& head, const HeadRows<const Bf16>& from, const Matrix& to) {
  for (int64_t i = 0; i < head.rows; ++i) {
#pragma omp simd
    for (int64_t j = 0; j < head.columns; ++j)
      to.data[i * to.stride + j] = Load(from.data[i * from.stride + j]);
  }
}

EQUIPOISE_INLINE void Narrow(const Head& head, const Matrix& from, const HeadRows<Bf16>& to) {
  for (int64_t i = 0; i < head.rows; ++i) {
#pragma omp simd
    for (int64_t j = 0; j < head.columns; ++j)
      Store(from.data[i * from.stride + j], to.data[i * to.stride + j]);
  }
}

EQUIPOISE_INLINE void Transpose(const Head& head, const Matrix& from, const Matrix& to) {
  for (int64_t i = 0; i < head.rows; ++i) {
    for (int64_t j = 0; j < head.columns; ++j)
      to.data[j * to.stride + i] = from.data[i * from.stride + j];
  }
}

// p = softmax of the scores q k', with zeros where nothing is seen.
EQUIPOISE_INLINE void Probabilities(const Head& head) {
  for (int64_t row = 0; row < head.height; row += kRows) {
    Product({row, 0, head.columns, RoundUp(head.SeenFrom(row), kLanes)},
            {head.q.data, head.q.stride, 1}, head.k_t, head.p, /*add=*/false);
  }
  for (int64_t i = 0; i < head.padded; ++i) {
    float* p = head.p.data + i * head.p.stride;
    const int64_t seen = i >= head.rows ? 0 : head.causal ? i + 1 : head.rows;
    float largest = seen > 0 ? p[0] : 0;
#pragma omp simd reduction(max : largest)
    for (int64_t j = 0; j < seen; ++j) largest = largest < p[j] ? p[j] : largest;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < seen; ++j) {
      p[j] = ExpOfNegative((p[j] - largest) * head.scale);
      sum += p[j];
    }
    const float share = seen > 0 ? 1.0F / sum : 0;
#pragma omp simd
    for (int64_t j = 0; j < seen; ++j) p[j] *= share;
    std::fill(p + seen, p + head.padded, 0.0F);
  }
}

// d = p (d - sum of p d) scale, row by row: the gradient of the scores for that of p.
EQUIPOISE_INLINE void ScoreGradients(const Head& head) {
  for (int64_t i = 0; i < head.rows; ++i) {
    const float* p = head.p.data + i * head.p.stride;
    float* d = head.d.data + i * head.d.stride;
    const int64_t seen = head.causal ? i + 1 : head.rows;
    std::fill(d + seen, d + head.padded, 0.0F);
    float along = 0;
#pragma omp simd reduction(+ : along)
    for (int64_t j = 0; j < head.padded; ++j) along += p[j] * d[j];
#pragma omp simd
    for (int64_t j = 0; j < head.padded; ++j) d[j] = p[j] * (d[j] - along) * head.scale;
  }
}

template <class T>
HeadRows<T> Columns(const HeadRows<T>& rows, int64_t first) {
  return {rows.data + first, rows.stride};
}

}  // namespace

EQUIPOISE_WIDE void ShortAttention(const ShortSegment& segment, HeadRows<Bf16> y,
                                   ShortAttentionMemory& memory) {
  const Head head(segment, memory);
  Widen(head, segment.k, head.k);
  Widen(head, segment.v, head.v);
  Transpose(head, head.k, head.k_t);
  for (int64_t h = 0; h < segment.query_heads; ++h) {
    const int64_t first = h * segment.head_dim;
    Widen(head, Columns(segment.q, first), head.q);
    Probabilities(head);
    for (int64_t row = 0; row < head.height; row += kRows) {
      Product({row, 0, head.SeenFrom(row), head.width}, {head.p.data, head.p.stride, 1}, head.v,
              head.gq, /*add=*/false);
    }
    Narrow(head, head.gq, Columns(y, first));
  }
}

EQUIPOISE_WIDE void ShortAttentionBackward(const ShortSegment& segment,
                                           const ShortGradients& gradients,
                                           ShortAttentionMemory& memory) {
  const Head head(segment, memory);
  Widen(head, segment.k, head.k);
  Widen(head, segment.v, head.v);
  Transpose(head, head.k, head.k_t);
  Transpose(head, head.v, head.v_t);
  for (int64_t h = 0; h < segment.query_heads; ++h) {
    const int64_t first = h * segment.head_dim;
    Widen(head, Columns(segment.q, first), head.q);
    Widen(head, Columns(gradients.g, first), head.g);
    Probabilities(head);
    for (int64_t row = 0; row < head.height; row += kRows) {
      Product({row, 0, head.columns, RoundUp(head.SeenFrom(row), kLanes)},
              {head.g.data, head.g.stride, 1}, head.v_t, head.d, /*add=*/false);
    }
    ScoreGradients(head);
    for (int64_t row = 0; row < head.height; row += kRows) {
      Product({row, 0, head.SeenFrom(row), head.width}, {head.d.data, head.d.stride, 1}, head.k,
              head.gq, /*add=*/false);
      const Block of_keys = {row, head.FirstSeeing(row), head.rows, head.width};
      Product(of_keys, {head.d.data, 1, head.d.stride}, head.q, head.gk, /*add=*/h > 0);
      Product(of_keys, {head.p.data, 1, head.p.stride}, head.g, head.gv, /*add=*/h > 0);
    }
    Narrow(head, head.gq, Columns(gradients.q, first));
  }
  Narrow(head, head.gk, gradients.k);
  Narrow(head, head.gv, gradients.v);
}

}  // namespace equipoise::ops
