#pragma once

#include <bit>
#include <cstdint>

namespace equipoise::ops {

// e^x for x <= 0, to 2e-7, without a call: loops with it become vectors. 2^n e^r with
// |r| <= ln 2 / 2, and e^r by its series to r^7. 0 below -87, e^-87 being nearly the least normal
// number; NaN stays NaN.
inline __attribute__((always_inline)) float ExpOfNegative(float number) {
  constexpr float kLeast = -87.0F;
  const float x = number < kLeast ? kLeast : number;
  constexpr float kLog2E = 1.44269504F, kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = x * kLog2E + kRound, n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float sum = (1.0F / 5040 * r + 1.0F / 720) * r + 1.0F / 120;
  sum = ((sum * r + 1.0F / 24) * r + 1.0F / 6) * r + 0.5F;
  sum = (sum * r + 1.0F) * r + 1.0F;
  const auto exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound) + 127;
  return number < kLeast ? 0.0F : sum * std::bit_cast<float>(exponent << 23);
}

}  // namespace equipoise::ops
