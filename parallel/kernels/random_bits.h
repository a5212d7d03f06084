#pragma once

#include <bit>
#include <cstdint>

#include "parallel/kernels/bf16.h"

namespace equipoise::kernels {

// Random bits without a state: hashes of an element's number, so that they are the same on every
// mesh and device. parallel/random_bits.h has them by LibTorch's operations.

// A hash of 32 bits, of which no two numbers have the same.
EQUIPOISE_DEVICE uint32_t MixedBits(uint32_t x) {
  constexpr uint32_t kFactor = 0x45d9f3b;
  x = (x ^ (x >> 16)) * kFactor;
  x = (x ^ (x >> 16)) * kFactor;
  return x ^ (x >> 16);
}

// 32 bits for an element. `key`: of what is drawn, such as a tensor's name and a step.
EQUIPOISE_DEVICE uint32_t RandomBits(uint64_t key, uint64_t element) {
  const uint32_t low = MixedBits(static_cast<uint32_t>(element) ^ static_cast<uint32_t>(key));
  return MixedBits(low ^ static_cast<uint32_t>(element >> 32) ^ static_cast<uint32_t>(key >> 32));
}

// Stochastic rounding (Gupta et al., arXiv 1502.02551, section 3): one of the two bf16 numbers
// around x, the farther from zero with a probability of x's distance from the other in units of
// theirs, so that the mean is x. A bf16 number stays what it is. `random`: of which the upper 16
// bits are taken, as many as bf16 leaves of fp32.
EQUIPOISE_DEVICE Bf16 RoundedByChance(float x, uint32_t random) {
  return {static_cast<uint16_t>((std::bit_cast<uint32_t>(x) + (random >> 16)) >> 16)};
}

// Where neighbouring elements of a rank's part of a tensor lie in the whole tensor, which may be
// split along any of its dimensions: `until` of them behind `first`, and after each `period` of
// those that follow `jump` elements of other ranks.
struct WholePlace {
  int64_t first = 0, until = INT64_MAX, period = 1, jump = 0;

  // Element i. REQUIRES: i < 2^31, and a period below that.
  EQUIPOISE_DEVICE int64_t At(int64_t i) const {
    if (i < until) return first + i;
    return first + i + (1 + Periods(i)) * jump;
  }
  // The end of those behind element i that are its neighbours in the whole tensor too.
  EQUIPOISE_DEVICE int64_t EndOfRun(int64_t i) const {
    return i < until ? until : until + (1 + Periods(i)) * period;
  }

 private:
  EQUIPOISE_DEVICE int64_t Periods(int64_t i) const {
    return static_cast<uint32_t>(i - until) / static_cast<uint32_t>(period);
  }
};

}  // namespace equipoise::kernels
