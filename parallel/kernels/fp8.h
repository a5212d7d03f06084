#pragma once

#include <bit>
#include <cstdint>

#include "parallel/kernels/bf16.h"

namespace equipoise::kernels {

// The bit pattern of an 8-bit float of four bits of exponent and three of mantissa without
// infinities (e4m3, arXiv 2209.05433, section 3): the largest is 448, steps below 2^-6 are 2^-9.
struct Fp8 {
  uint8_t bits;
};

constexpr float kLargestFp8 = 448;
// Rows of smaller numbers alone become zeros: the factor that makes their largest kLargestFp8 would
// be infinite below 1.3e-36, and their codes NaN.
constexpr float kLeastFp8Row = 1e-30F;

// Rounds to nearest, ties to even; what would round to more than kLargestFp8 becomes NaN, as do
// infinities; NaN stays NaN.
EQUIPOISE_DEVICE void Store(float x, Fp8& y) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 24) & 0x80, size = bits & 0x7fffffff;
  uint32_t code = 0x7f;
  if (size < 0x3c800000) {  // below 2^-6: the sum with 2^14 has steps of 2^-9
    code = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 16384.0F) & 0xf;
  } else if (size <= 0x43e80000) {  // up to 464, halfway to what would come next
    // 20 bits of mantissa are dropped, and the exponent counts from 7 instead of 127.
    code = ((size + 0x7ffff + ((size >> 20) & 1)) >> 20) - (120U << 3);
  }
  y.bits = static_cast<uint8_t>(sign | code);
}

}  // namespace equipoise::kernels
