#pragma once

#include <cstdint>

#include "parallel/kernels/row_team.h"

namespace equipoise::kernels {

// Rows of frozen weights that are held in fewer bits (models/weights/packed_part.h, gptq_part.h):
// computed in fp32, rounded once. `packed`: 8 elements are moved at once; the codes of a row begin
// at a multiple of as many, `size` is one, and all pointers are aligned to 16 bytes.
constexpr int kUnpacked = 8;

// a * b rounded, which no compiler joins with a sum that follows.
EQUIPOISE_DEVICE float RoundedProduct(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

// y [rows, size] = codes * a scale for each row. 3 bytes are moved for an element in 16 bits.
template <class T>
struct Int8Row {
  const int8_t* codes;
  const float* scales;
  T* y;
  int64_t size;
  bool packed;

  using Shared = Nothing;
  static constexpr int kPack = kUnpacked;

  template <int kSize, class Team>
  EQUIPOISE_DEVICE void Run(int64_t row, const Team& team) const {
    const float scale = scales[row];
    for (int64_t i = team.thread * kSize; i < size; i += team.threads * kSize) {
      const auto some = Pack<int8_t, kSize>::From(codes + row * size + i);
      Lanes<kSize> result;
      for (int j = 0; j < kSize; ++j) result.at[j] = static_cast<float>(some.at[j]) * scale;
      result.To(y + row * size + i);
    }
  }
};

// Where the elements of NF4's blocks go. Blocks are held in rows of `stride` elements, of which
// `size` behind the first `first` are a row of the result; it has `total` elements, so that the
// last row may be shorter. Scales of 256 blocks of the whole matrix share one: a row's first block
// held is the whole's block `whole_first` + row * `whole_blocks`.
struct Nf4Layout {
  int64_t size, total, stride, first, whole_first, whole_blocks;
};

// y = value of the code * scale of its block of 64, which is dynamic[code] * largest of its group
// + offset; two codes a byte, the first in the high bits. 2.5 bytes are moved for an element in 16
// bits.
template <class T>
struct Nf4Row {
  const uint8_t* codes;
  const uint8_t* scale_codes;
  const float* largest;
  const float* values;   // [16] of NF4
  const float* dynamic;  // [256]
  T* y;
  float offset;
  Nf4Layout layout;
  bool packed;

  struct Shared {
    float values[16];
  };
  static constexpr int kPack = kUnpacked;
  static constexpr int kBlock = 64, kNested = 256;

  template <int kSize, class Team>
  EQUIPOISE_DEVICE void Run(int64_t row, const Team& team) const {
    for (int64_t i = team.thread; i < 16; i += team.threads) team.shared.values[i] = values[i];
    team.Wait();
    const int64_t left = layout.total - row * layout.size;
    const int64_t here = left < layout.size ? left : layout.size;
    const int64_t first_block = row * (layout.stride / kBlock);
    for (int64_t i = team.thread * kSize; i < here; i += team.threads * kSize) {
      const int64_t in_row = layout.first + i, element = row * layout.stride + in_row;
      const int64_t block = in_row / kBlock;
      const int64_t group = (layout.whole_first + row * layout.whole_blocks + block) / kNested;
      const float scale =
          RoundedProduct(dynamic[scale_codes[first_block + block]], largest[group]) + offset;
      Lanes<kSize> result;
      if constexpr (kSize == 1) {
        const int code = element % 2 == 0 ? codes[element / 2] >> 4 : codes[element / 2] & 15;
        result.at[0] = team.shared.values[code] * scale;
      } else {
        const auto pairs = Pack<uint8_t, kSize / 2>::From(codes + element / 2);
        for (int j = 0; j < kSize / 2; ++j) {
          result.at[2 * j] = team.shared.values[pairs.at[j] >> 4] * scale;
          result.at[2 * j + 1] = team.shared.values[pairs.at[j] & 15] * scale;
        }
      }
      result.To(y + row * layout.size + i);
    }
  }
};

// y [rows, size] = scales[group] * (code - zeros[group]) with the group of each column; two codes a
// byte, the first in the low bits, rows of whole bytes. With the indices 6.5 bytes are moved for an
// element in 16 bits, of which the indices' 4 come from the cache.
template <class T>
struct GptqRow {
  const uint8_t* codes;
  const float* scales;    // [rows, count]
  const uint8_t* zeros;   // [rows, count]
  const int32_t* groups;  // [size]
  T* y;
  int64_t size, count;
  bool packed;

  using Shared = Nothing;
  static constexpr int kPack = kUnpacked;

  template <int kSize, class Team>
  EQUIPOISE_DEVICE void Run(int64_t row, const Team& team) const {
    const uint8_t* from = codes + row * ((size + 1) / 2);
    const float* scale = scales + row * count;
    const uint8_t* zero = zeros + row * count;
    const auto value = [&](int code, int32_t group) {
      return scale[group] * static_cast<float>(code - zero[group]);
    };
    for (int64_t i = team.thread * kSize; i < size; i += team.threads * kSize) {
      Lanes<kSize> result;
      if constexpr (kSize == 1) {
        result.at[0] = value(i % 2 == 0 ? from[i / 2] & 15 : from[i / 2] >> 4, groups[i]);
      } else {
        const auto pairs = Pack<uint8_t, kSize / 2>::From(from + i / 2);
        for (int j = 0; j < kSize / 2; ++j) {
          result.at[2 * j] = value(pairs.at[j] & 15, groups[i + 2 * j]);
          result.at[2 * j + 1] = value(pairs.at[j] >> 4, groups[i + 2 * j + 1]);
        }
      }
      result.To(y + row * size + i);
    }
  }
};

}  // namespace equipoise::kernels
