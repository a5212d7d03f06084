#include "parallel/stochastic_rounding.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/random_bits.h"

namespace equipoise {
namespace {

using kernels::Bf16;
using kernels::Load;
using kernels::RoundedByChance;
using kernels::WholePlace;

// The mean of x rounded by 2^18 draws: over elements, or over keys.
double MeanRounded(float x, bool over_elements) {
  constexpr uint64_t kDraws = 1 << 18;
  double sum = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const uint64_t key = 0x9e3779b97f4a7c15 * (over_elements ? 1 : i + 1);
    sum += Load(RoundedByChance(x, kernels::RandomBits(key, over_elements ? i : 7)));
  }
  return sum / kDraws;
}

TEST_CASE("the mean of what a number is rounded to is the number", "[parallel][cpu]") {
  const bool over_elements = GENERATE(true, false);
  // Some near a power of two, where the distances of neighbours differ, and a subnormal one.
  for (const float x : {1.001F, 1.0078F, -1.0035F, 0.99999F, 1.99999F, 3.14159F, -1e-3F, 6.1e-5F,
                        1e30F, -2.5e-38F, 1e-39F}) {
    const auto bits = std::bit_cast<uint32_t>(x);
    const double low = std::bit_cast<float>(bits & 0xffff0000U);
    const double high = std::bit_cast<float>((bits & 0xffff0000U) + 0x10000U);
    const double share = (x - low) / (high - low);
    INFO(x << ", " << share << " of the way from " << low << " to " << high);
    // Five standard deviations of the mean of 2^18 draws of two values: a fair one is beyond it
    // once in 1.7 million times.
    const double deviation = std::abs(high - low) * std::sqrt(share * (1 - share) / (1 << 18));
    CHECK(std::abs(MeanRounded(x, over_elements) - x) <= 5 * deviation);
  }
}

TEST_CASE("a bf16 number is rounded to itself", "[parallel][cpu]") {
  int changed = 0;
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint32_t random : {0U, 0x12345678U, 0xffffffffU}) {
      if (RoundedByChance(std::bit_cast<float>(high << 16), random).bits != high) ++changed;
    }
  }
  CHECK(changed == 0);
  // And every other number to one of its neighbours.
  const float x = 1.003F;
  CHECK(Load(RoundedByChance(x, 0)) == 1.0F);
  CHECK(Load(RoundedByChance(x, 0xffffffff)) == 1.0078125F);
  CHECK(Load(RoundedByChance(-x, 0xffffffff)) == -1.0078125F);
}

TEST_CASE("each of the 16 bits that are taken is set in half of the draws, as if alone",
          "[parallel][cpu]") {
  constexpr int kDraws = 1 << 16;
  std::array<std::array<int, 16>, 16> both = {};
  for (int i = 0; i < kDraws; ++i) {
    const uint32_t bits = kernels::RandomBits(5, static_cast<uint64_t>(i)) >> 16;
    for (uint32_t a = 0; a < 16; ++a) {
      for (uint32_t b = 0; b < 16; ++b)
        both[a][b] += static_cast<int>((bits >> a) & (bits >> b) & 1);
    }
  }
  for (size_t a = 0; a < 16; ++a) {
    for (size_t b = 0; b < 16; ++b) {
      const double share = a == b ? 0.5 : 0.25;
      // 120 pairs and 16 bits: 5 standard deviations of each.
      CHECK(std::abs(both[a][b] - share * kDraws) < 5 * std::sqrt(share * (1 - share) * kDraws));
    }
  }
}

TEST_CASE("LibTorch's operations have the hashes of the kernels", "[parallel][cpu]") {
  const int64_t begin = GENERATE(int64_t{0}, (int64_t{1} << 32) - 500, int64_t{1} << 45);
  const uint64_t key = GENERATE(uint64_t{0}, uint64_t{0xfedcba9876543210});
  const at::Tensor found = RandomBits(key, at::arange(begin, begin + 1000, at::kLong));
  int differing = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const uint32_t expected = kernels::RandomBits(key, static_cast<uint64_t>(begin + i));
    if (found.const_data_ptr<int64_t>()[i] != static_cast<int64_t>(expected)) ++differing;
  }
  CHECK(differing == 0);
}

Parameter PartOf(const std::vector<int64_t>& whole, int dim, int64_t begin, int64_t size) {
  Parameter parameter;
  parameter.shape = whole;
  parameter.shape[static_cast<size_t>(dim)] = size;
  parameter.part = {dim, begin, whole[static_cast<size_t>(dim)], true};
  return parameter;
}

TEST_CASE("elements of a part are found in the whole tensor", "[parallel][cpu]") {
  const int dim = GENERATE(0, 1, 2);
  const std::vector<int64_t> whole = {6, 10, 4};
  const int64_t begin = dim, size = 2;
  const Parameter parameter = PartOf(whole, dim, begin, size);
  const at::Tensor numbers = at::arange(6 * 10 * 4, at::kLong)
                                 .view(whole)
                                 .narrow(dim, begin, size)
                                 .contiguous()
                                 .view({-1});
  const auto* expected = numbers.const_data_ptr<int64_t>();
  for (int64_t first = 0; first < numbers.numel(); ++first) {
    const WholePlace place = PlaceInWhole(parameter, first);
    for (int64_t i = 0; first + i < numbers.numel(); ++i) {
      REQUIRE(place.At(i) == expected[first + i]);
      const int64_t end = std::min(place.EndOfRun(i), numbers.numel() - first);
      REQUIRE(end > i);
      REQUIRE(place.At(end - 1) == place.At(i) + end - 1 - i);
    }
  }
  Parameter alone;
  alone.shape = {6, 10};
  CHECK(PlaceInWhole(alone, 7).At(9) == 16);
}

TEST_CASE("a part beyond 2^31 elements a row is found too", "[parallel][cpu]") {
  const int64_t row = int64_t{3} << 31;
  const Parameter parameter = PartOf({2, 2 * row}, 1, row, row);
  const WholePlace place = PlaceInWhole(parameter, row - 5);
  CHECK(place.At(4) == 2 * row - 1);
  CHECK(place.At(5) == 3 * row);
  CHECK(place.At(9000) == 3 * row + 8995);
}

TEST_CASE("LibTorch's operations round as the kernels do", "[parallel][cpu]") {
  const int dim = GENERATE(0, 1);
  const Parameter parameter = PartOf({40, 60}, dim, 10, 20);
  const int64_t first = GENERATE(0, 37), size = parameter.numel() - first;
  const at::Tensor exact = at::randn({size});
  at::Tensor rounded = at::empty({size}, at::kBFloat16);
  const RandomPlace at{0x123456789abcdef0, PlaceInWhole(parameter, first)};
  RoundStochastically(exact, at, rounded);
  int differing = 0, up = 0;
  for (int64_t i = 0; i < size; ++i) {
    const float x = exact.const_data_ptr<float>()[i];
    const auto place = static_cast<uint64_t>(at.place.At(i));
    const Bf16 expected = RoundedByChance(x, kernels::RandomBits(at.key, place));
    const float found = rounded[i].item<float>();
    if (found != Load(expected)) ++differing;
    if (std::abs(found) > std::abs(x)) ++up;
  }
  CHECK(differing == 0);
  CHECK(std::abs(up - size / 2) < 5 * std::sqrt(static_cast<double>(size) / 4));
}

}  // namespace
}  // namespace equipoise
