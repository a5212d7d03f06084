#pragma once

#include <bit>
#include <cstdint>

// For functions that nvcc compiles, and plain compilers for several instruction sets.
#ifdef __CUDACC__
#define EQUIPOISE_DEVICE __host__ __device__ __forceinline__
#else
#define EQUIPOISE_DEVICE inline __attribute__((always_inline))
#endif

namespace equipoise::kernels {

// The bit pattern of a bfloat16.
struct Bf16 {
  uint16_t bits;
};

// An element of memory as fp32, and back: an fp32 one as it is.
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

}  // namespace equipoise::kernels
