// fp8 by the program's own conversion beside LibTorch's.
#include <c10/util/Float8_e4m3fn.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>

#include "parallel/kernels/fp8.h"

namespace equipoise::kernels {
namespace {

TEST_CASE("fp32 numbers are rounded to fp8 as LibTorch does", "[kernels]") {
  int64_t differing = 0, zeros = 0, not_numbers = 0, largest = 0;
  const auto compare = [&](uint32_t bits) {
    const auto x = std::bit_cast<float>(bits);
    Fp8 found{};
    Store(x, found);
    const c10::Float8_e4m3fn expected(x);
    const bool none = std::isnan(static_cast<float>(expected));
    if (none ? (found.bits & 0x7f) != 0x7f : found.bits != expected.x) ++differing;
    if ((found.bits & 0x7f) == 0) ++zeros;
    if ((found.bits & 0x7f) == 0x7e) ++largest;
    if (none) ++not_numbers;
  };
  // An odd step: all exponents, both signs, and every pattern of the bits that are rounded away.
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4099)
    compare(static_cast<uint32_t>(bits));
  for (const float x : {0.0F, -0.0F, 0x1p-9F, 0x1p-10F, 0x1.8p-10F, 0x1p-6F, 0x1.fp-7F, 448.0F,
                        -448.0F, 463.9F, 464.0F, 480.0F, INFINITY, NAN})
    compare(std::bit_cast<uint32_t>(x));
  CHECK(differing == 0);
  CHECK(zeros > 0);
  CHECK(largest > 0);
  CHECK(not_numbers > 0);
}

}  // namespace
}  // namespace equipoise::kernels
