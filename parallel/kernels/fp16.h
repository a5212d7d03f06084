#pragma once

#include <bit>
#include <cstdint>

#include "parallel/kernels/bf16.h"

namespace equipoise::kernels {

// The bit pattern of an IEEE half: 5 bits of exponent, whose bias is 112 less than fp32's, and 10
// of the fraction. A GPU converts it by an instruction. On a CPU there are no branches, so that
// loops over elements are vectorised.
struct Fp16 {
  uint16_t bits;
};

EQUIPOISE_DEVICE float Load(Fp16 x) {
#ifdef __CUDA_ARCH__
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
#else
  // Shifted to fp32's places, the number is 2^112 too small; a subnormal one is one there too.
  const uint32_t places = (x.bits & 0x7fffU) << 13;
  const auto size = std::bit_cast<uint32_t>(std::bit_cast<float>(places) * 0x1p112F);
  const uint32_t not_finite = (x.bits & 0x7c00U) == 0x7c00U ? 0x7f800000U : 0U;
  return std::bit_cast<float>(size | not_finite | (x.bits & 0x8000U) << 16);
#endif
}

// Rounds to nearest, ties to even; 65520 and more are infinite; NaN stays NaN.
EQUIPOISE_DEVICE void Store(float x, Fp16& y) {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
  constexpr uint32_t kLeastNormal = 0x38800000, kInfinite = 0x477ff000;  // 2^-14, 65520
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t size = bits & 0x7fffffffU;
  const uint32_t normal = (size - (112U << 23) + 0xfffU + (size >> 13 & 1U)) >> 13;
  // A smaller one is a number of 2^-24, which is the last bit of 0.5: the sum is rounded to it.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5F) - std::bit_cast<uint32_t>(0.5F);
  uint32_t rounded = size < kLeastNormal ? subnormal : normal;
  rounded = size >= kInfinite ? 0x7c00U : rounded;
  rounded = size > 0x7f800000U ? 0x7e00U : rounded;
  y.bits = static_cast<uint16_t>(rounded | (bits >> 16 & 0x8000U));
#endif
}

}  // namespace equipoise::kernels
