#pragma once

#include <cstdint>

#include "parallel/kernels/row_team.h"

namespace equipoise::kernels {

// y [rows, size] = x * scale [size], + base where it is given: layer scale, and the gradient of its
// input. Computed in fp32 and rounded once. `packed`: all pointers are aligned to 16 bytes, and
// `size` is a multiple of a Pack's elements.
template <class T>
struct ScaledRow {
  const T* base;  // nullptr: none
  const T* x;
  const T* scale;
  T* y;
  int64_t size;
  bool packed;

  using Shared = Nothing;
  static constexpr int kPack = kWidest<T>;

  template <int kSize, class Team>
  EQUIPOISE_DEVICE void Run(int64_t row, const Team& team) const {
    for (int64_t i = team.thread * kSize; i < size; i += team.threads * kSize) {
      auto result = Lanes<kSize>::From(x + row * size + i);
      const auto factor = Lanes<kSize>::From(scale + i);
      for (int j = 0; j < kSize; ++j) result.at[j] *= factor.at[j];
      if (base != nullptr) {
        const auto added = Lanes<kSize>::From(base + row * size + i);
        for (int j = 0; j < kSize; ++j) result.at[j] += added.at[j];
      }
      result.To(y + row * size + i);
    }
  }
};

}  // namespace equipoise::kernels
