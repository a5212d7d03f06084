#pragma once

#include <cstdint>

#include "parallel/kernels/random_bits.h"
#include "parallel/kernels/row_team.h"

namespace equipoise::kernels {

// y [rows, size] = x * factor where a hash of row, column and key is at least `bound`, else x * 0:
// dropout, and the gradient of its input. Computed in fp32 and rounded once. `packed`: x and y are
// aligned to 16 bytes, and `size` is a multiple of a Pack's elements.
template <class T>
struct DropoutRow {
  const T* x;
  T* y;
  int64_t size;
  int64_t first_row, first_column;  // of x in the whole tensor
  uint64_t key;
  uint64_t bound;  // a share of 2^32
  float factor;
  bool packed;

  using Shared = Nothing;
  static constexpr int kPack = kWidest<T>;

  template <int kSize, class Team>
  EQUIPOISE_DEVICE void Run(int64_t row, const Team& team) const {
    const auto low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
    const uint32_t of_row = MixedBits(static_cast<uint32_t>(first_row + row) ^ low);
    for (int64_t i = team.thread * kSize; i < size; i += team.threads * kSize) {
      auto result = Lanes<kSize>::From(x + row * size + i);
      for (int j = 0; j < kSize; ++j) {
        const uint32_t of_column = MixedBits(static_cast<uint32_t>(first_column + i + j) ^ high);
        result.at[j] *= MixedBits(of_row ^ of_column) >= bound ? factor : 0;
      }
      result.To(y + row * size + i);
    }
  }
};

}  // namespace equipoise::kernels
