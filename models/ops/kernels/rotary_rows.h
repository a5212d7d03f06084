#pragma once

#include <cstdint>

#include "parallel/kernels/row_team.h"

namespace equipoise::kernels {

// Rotary embedding of rows, computed in fp32 and rounded once: every head's pair (x[i], x[i +
// half]) is rotated by the row's angle i, with `direction` -1 backwards. Row r of x begins at x +
// r * stride and has `size` elements, those of y are contiguous, cos and sin are [rows, half]. Two
// elements are moved for each of x, and the angles. `packed`: as for SwiGluRow, of rows of `half`
// elements, and of the stride.
template <class T>
struct RotaryRow {
  const T* x;
  T* y;
  const float* cos;
  const float* sin;
  int64_t stride;
  int size, half;
  float direction;
  bool packed;

  using Shared = Nothing;
  static constexpr int kPack = kWidest<T>;

  template <int kSize, class Team>
  EQUIPOISE_DEVICE void Run(int64_t row, const Team& team) const {
    const T* from = x + row * stride;
    T* to = y + row * size;
    const int step = static_cast<int>(team.threads) * kSize;
    for (int pair = static_cast<int>(team.thread) * kSize; pair < size / 2; pair += step) {
      const int angle = pair % half, i = 2 * pair - angle;  // heads before hold 2 * (pair - angle)
      const auto first = Lanes<kSize>::From(from + i), second = Lanes<kSize>::From(from + i + half);
      const auto c = Lanes<kSize>::From(cos + row * half + angle),
                 s = Lanes<kSize>::From(sin + row * half + angle);
      Lanes<kSize> left, right;
      for (int j = 0; j < kSize; ++j) {
        const float turn = direction * s.at[j];
        left.at[j] = first.at[j] * c.at[j] - second.at[j] * turn;
        right.at[j] = second.at[j] * c.at[j] + first.at[j] * turn;
      }
      left.To(to + i);
      right.To(to + i + half);
    }
  }
};

}  // namespace equipoise::kernels
