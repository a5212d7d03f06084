#pragma once

#include <cmath>
#include <cstdint>

#include "parallel/kernels/fp8.h"
#include "parallel/kernels/row_team.h"

namespace equipoise::kernels {

// Rows in fp8: codes [rows, size] and for each row a scale, its largest size over kLargestFp8, by
// which its codes are multiplied; where that is below kLeastFp8Row, all codes are zeros. `stride`:
// elements between two rows of `x`. `packed`: all pointers are aligned to 16 bytes, and `size` and
// `stride` are multiples of 16 elements.
template <class T>
struct Fp8Row {
  const T* x;
  Fp8* codes;
  float* scales;
  int64_t size, stride;
  bool packed;

  struct Shared {
    float numbers[kMostThreads];
  };
  static constexpr int kPack = kWidest<T>;

  template <int kSize, class Team>
  EQUIPOISE_DEVICE void Run(int64_t row, const Team& team) const {
    const T* from = x + row * stride;
    float mine = 0;
    for (int64_t i = team.thread * kSize; i < size; i += team.threads * kSize) {
      const auto some = Lanes<kSize>::From(from + i);
      for (int j = 0; j < kSize; ++j) mine = fmaxf(mine, fabsf(some.at[j]));
    }
    const float largest = fmaxf(
        kLeastFp8Row,
        OverTeam(team, mine, team.shared.numbers, [](float a, float b) { return fmaxf(a, b); }));
    const float factor = kLargestFp8 / largest;
    for (int64_t i = team.thread * kSize; i < size; i += team.threads * kSize) {
      auto some = Lanes<kSize>::From(from + i);
      for (int j = 0; j < kSize; ++j) some.at[j] *= factor;
      some.To(codes + row * size + i);
    }
    if (team.thread == 0) scales[row] = largest / kLargestFp8;
  }
};

}  // namespace equipoise::kernels
