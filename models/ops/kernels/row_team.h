#pragma once

#include <bit>
#include <cstdint>

#include "models/ops/row_kernels.h"

#ifdef __CUDACC__
#define EQUIPOISE_DEVICE __host__ __device__ __forceinline__
#else
#define EQUIPOISE_DEVICE inline
#endif

namespace equipoise::ops {

// Row functions are the program's CUDA kernels: a row is computed by a team, which is the threads
// of a block on a GPU, and one thread on the CPU. A plain compiler compiles them too, so tests hold
// them beside LibTorch on machines without a GPU. Device code: no exceptions, no allocation.

EQUIPOISE_DEVICE float Load(float x) { return x; }
EQUIPOISE_DEVICE float Load(Bf16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

EQUIPOISE_DEVICE void Store(float x, float& y) { y = x; }
// Rounds to nearest, ties to even; NaN stays NaN.
EQUIPOISE_DEVICE void Store(float x, Bf16& y) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  y.bits = static_cast<uint16_t>(x != x ? 0x7fc0 : rounded);
}

// One thread that does all of a row.
struct LoneThread {
  static constexpr int64_t thread = 0, threads = 1;
};

// 16 bytes of memory, read or written at once: `kSize` elements of T.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T at[kSize];
};

// `kSize` elements that lie behind each other, as fp32. `kSize` above 1 asks for the alignment of a
// Pack.
template <int kSize>
struct Lanes {
  float at[kSize];

  template <class T>
  EQUIPOISE_DEVICE static Lanes From(const T* memory) {
    constexpr int kPack = kSize < Pack<T>::kSize ? kSize : Pack<T>::kSize;
    Lanes lanes;
    if constexpr (kSize == 1) {
      lanes.at[0] = Load(*memory);
    } else {
      for (int i = 0; i < kSize; i += kPack) {
        const Pack<T> pack = *reinterpret_cast<const Pack<T>*>(memory + i);
        for (int j = 0; j < kPack; ++j) lanes.at[i + j] = Load(pack.at[j]);
      }
    }
    return lanes;
  }

  template <class T>
  EQUIPOISE_DEVICE void To(T* memory) const {
    constexpr int kPack = kSize < Pack<T>::kSize ? kSize : Pack<T>::kSize;
    if constexpr (kSize == 1) {
      Store(at[0], *memory);
    } else {
      for (int i = 0; i < kSize; i += kPack) {
        Pack<T> pack;
        for (int j = 0; j < kPack; ++j) Store(at[i + j], pack.at[j]);
        *reinterpret_cast<Pack<T>*>(memory + i) = pack;
      }
    }
  }
};

}  // namespace equipoise::ops
