#include "parallel/zero/tree_sum.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

namespace equipoise {
namespace {

std::vector<float> Numbers(size_t count) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 10);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(random) * normal(random);
  return numbers;
}

double Whole(const std::vector<float>& numbers) {
  TreeSum sum;
  AddSquares(numbers.data(), static_cast<int64_t>(numbers.size()), 0, sum);
  return sum.Total();
}

TEST_CASE("the tree adds all squares", "[norm][cpu]") {
  const size_t count = GENERATE(0, 1, 7, 8, 63, 64, 65, 1000, 64 * 37 + 5);
  const std::vector<float> numbers = Numbers(count);
  long double expected = 0;
  for (const float number : numbers) expected += static_cast<long double>(number) * number;
  CHECK(Whole(numbers) == Approx(static_cast<double>(expected)).epsilon(1e-14));
}

TEST_CASE("who adds which part changes no bit", "[norm][cpu]") {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const auto count = std::uniform_int_distribution<int64_t>(1, 64 * 150)(random);
    const std::vector<float> numbers = Numbers(static_cast<size_t>(count));
    const int64_t blocks = (count + 63) / 64;
    TreeSum assembled;
    for (int64_t first = 0; first < blocks;) {
      const int64_t last = std::uniform_int_distribution<int64_t>(first + 1, blocks)(random);
      TreeSum part;
      AddSquares(numbers.data() + first * 64, std::min(count, last * 64) - first * 64, first, part);
      const std::vector<TreeNode> named = NodesOf({first, last});
      REQUIRE(part.nodes().size() == named.size());
      for (size_t i = 0; i < named.size(); ++i) {
        REQUIRE(part.nodes()[i].level == named[i].level);
        REQUIRE(part.nodes()[i].index == named[i].index);
        assembled.Add(part.nodes()[i]);
      }
      first = last;
    }
    REQUIRE(assembled.Total() == Whole(numbers));
  }
}

TEST_CASE("a range of any length is a few nodes", "[norm][cpu]") {
  CHECK(NodesOf({0, 0}).empty());
  CHECK(NodesOf({0, 1024}).size() == 1);
  CHECK(NodesOf({1, 1023}).size() == 18);
}

TEST_CASE("what is not finite stays so", "[norm][cpu]") {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    for (const size_t at : {0, 100, 199}) {
      std::vector<float> numbers(200, 1.0F);
      numbers[at] = bad;
      CHECK_FALSE(std::isfinite(Whole(numbers)));
    }
  }
}

}  // namespace
}  // namespace equipoise
