// fp16 by the program's own conversions beside LibTorch's.
#include <c10/util/Half.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>

#include "parallel/kernels/fp16.h"

namespace equipoise::kernels {
namespace {

TEST_CASE("every fp16 number is loaded as LibTorch does", "[kernels]") {
  int64_t differing = 0, not_numbers = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float found = Load(Fp16{half});
    const auto expected = static_cast<float>(c10::Half(half, c10::Half::from_bits()));
    if (std::isnan(expected)) ++not_numbers;
    const bool same = std::bit_cast<uint32_t>(found) == std::bit_cast<uint32_t>(expected);
    if (!same && !(std::isnan(found) && std::isnan(expected))) ++differing;
  }
  CHECK(differing == 0);
  CHECK(not_numbers == 2 * 1023);
}

TEST_CASE("fp32 numbers are rounded to fp16 as LibTorch does", "[kernels]") {
  int64_t differing = 0, infinite = 0, zeros = 0;
  const auto compare = [&](uint32_t bits) {
    const auto x = std::bit_cast<float>(bits);
    Fp16 found{};
    Store(x, found);
    const uint16_t expected = c10::Half(x).x;
    const bool same = std::isnan(x) ? std::isnan(Load(found)) : found.bits == expected;
    if (!same) ++differing;
    if (std::isinf(Load(found))) ++infinite;
    if (Load(found) == 0) ++zeros;
  };
  // An odd step: all exponents, both signs, and every pattern of the bits that are rounded away.
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 1001) compare(static_cast<uint32_t>(bits));
  // Halfway between two neighbours, and beside it, of numbers that are normal, subnormal, or at the
  // ends of the range.
  for (uint32_t half = 0; half < 0x7c00; ++half) {
    const float low = Load(Fp16{static_cast<uint16_t>(half)});
    const float high = half == 0x7bff ? 65536.0F : Load(Fp16{static_cast<uint16_t>(half + 1)});
    const auto middle = std::bit_cast<uint32_t>(low + (high - low) / 2);
    for (const uint32_t bits : {middle - 1, middle, middle + 1}) {
      compare(bits);
      compare(bits | 0x80000000U);
    }
  }
  CHECK(differing == 0);
  CHECK(infinite > 1000);
  CHECK(zeros > 1000);
}

}  // namespace
}  // namespace equipoise::kernels
