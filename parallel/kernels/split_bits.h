#pragma once

#include <bit>
#include <cstdint>

#include "parallel/kernels/bf16.h"

namespace equipoise::kernels {

// The two halves of an fp32 master weight; parallel/split_master.h says what they are. The low half
// of a master is its remainder as it stands: rounding adds 2^15 to it, and measuring from the
// rounded number takes the same away.

EQUIPOISE_DEVICE Bf16 RoundedHalf(uint32_t master) {
  return {static_cast<uint16_t>((master + 0x8000U) >> 16)};
}
EQUIPOISE_DEVICE int16_t RemainingHalf(uint32_t master) { return static_cast<int16_t>(master); }
EQUIPOISE_DEVICE uint32_t JoinedHalves(Bf16 rounded, int16_t remainder) {
  return (static_cast<uint32_t>(rounded.bits) << 16) + static_cast<uint32_t>(remainder);
}

}  // namespace equipoise::kernels
