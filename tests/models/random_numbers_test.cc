#include "models/weights/random_numbers.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <utility>
#include <vector>

namespace equipoise {
namespace {

constexpr uint64_t kKey = 0x123456789abcdef;
constexpr int64_t kCount = 1 << 20;

// SplitMix64 and the C library.
double Uniform(int64_t index) {
  uint64_t x = kKey + (static_cast<uint64_t>(index) + 1) * 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return (static_cast<double>((x ^ (x >> 31)) >> 11) + 1.0) * 0x1p-53;
}

double Normal(int64_t index) {
  const int64_t first = index / 2 * 2;
  const double radius = std::sqrt(-2.0 * std::log(Uniform(first)));
  const double angle = 2 * M_PI * Uniform(first + 1);
  return radius * (index == first ? std::cos(angle) : std::sin(angle));
}

TEST_CASE("normal numbers are Box and Muller's by the C library", "[models][cpu]") {
  std::vector<float> drawn(kCount);
  DrawNormal(kKey, 0.5, 0, kCount, drawn.data());
  int64_t other = 0, far = 0;
  double sum = 0, squares = 0, fourths = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const double x = drawn[static_cast<size_t>(i)], expected = 0.5 * Normal(i);
    other += static_cast<float>(expected) != drawn[static_cast<size_t>(i)] ? 1 : 0;
    far += std::abs(x - expected) > 6e-8 * std::abs(expected) + 1e-15 ? 1 : 0;
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
  }
  CHECK(far == 0);
  CHECK(other <= 1);  // numbers that lie between two of fp32
  CHECK(sum / kCount == Approx(0).margin(5 * 0.5 / 1024));
  CHECK(squares / kCount == Approx(0.25).epsilon(0.007));
  CHECK(fourths / kCount == Approx(3.0 / 16).epsilon(0.02));
}

TEST_CASE("a random number depends on its index alone", "[models][cpu]") {
  std::vector<float> whole(1000), part(1001);
  for (const bool normal : {true, false}) {
    const auto draw = [&](int64_t first, int64_t last, float* out) {
      normal ? DrawNormal(kKey, 0.02, first, last, out) : DrawUniform(kKey, 0.02, first, last, out);
    };
    draw(0, 1000, whole.data());
    for (const auto& [first, last] : {std::pair{0, 1},
                                      {1, 2},
                                      {3, 4},
                                      {0, 17},
                                      {5, 22},
                                      {7, 1000},
                                      {8, 999},
                                      {500, 500},
                                      {501, 501}}) {
      std::fill(part.begin(), part.end(), 9.0F);
      draw(first, last, part.data());
      for (int i = first; i < last; ++i) {
        CHECK(std::bit_cast<uint32_t>(part[static_cast<size_t>(i - first)]) ==
              std::bit_cast<uint32_t>(whole[static_cast<size_t>(i)]));
      }
      CHECK(part[static_cast<size_t>(last - first)] == 9.0F);
    }
  }
}

TEST_CASE("uniform numbers are those of SplitMix64", "[models][cpu]") {
  std::vector<float> drawn(1000);
  DrawUniform(kKey, 3, 0, 1000, drawn.data());
  for (int64_t i = 0; i < 1000; ++i) {
    CHECK(drawn[static_cast<size_t>(i)] == static_cast<float>(3 * (2 * Uniform(i) - 1)));
  }
}

}  // namespace
}  // namespace equipoise
