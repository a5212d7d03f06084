#include "balance/search/recompute.h"

#include <catch2/catch.hpp>
#include <limits>
#include <random>
#include <vector>

namespace equipoise {
namespace {

using Layers = std::vector<std::vector<RecomputeOption>>;

struct Total {
  double seconds = 0;
  int64_t bytes = 0;
};

Total Sum(const Layers& layers, const std::vector<Recompute>& kinds) {
  Total total;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const RecomputeOption& option : layers[i]) {
      if (option.kind != kinds[i]) continue;
      total.seconds += option.seconds;
      total.bytes += option.bytes;
    }
  }
  return total;
}

// Least seconds within the budget by trying all combinations; infinity where none fits.
double BruteForce(const Layers& layers, size_t layer, int64_t budget) {
  if (budget < 0) return std::numeric_limits<double>::infinity();
  if (layer == layers.size()) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (const RecomputeOption& option : layers[layer]) {
    least = std::min(least, option.seconds + BruteForce(layers, layer + 1, budget - option.bytes));
  }
  return least;
}

const std::vector<RecomputeOption> kVision = {{Recompute::kNone, 0, 10},
                                              {Recompute::kAttention, 1, 7},
                                              {Recompute::kMlp, 2, 5},
                                              {Recompute::kFull, 3, 1}};
const std::vector<RecomputeOption> kText = {{Recompute::kNone, 0, 8}, {Recompute::kFull, 4, 2}};

TEST_CASE("nothing is computed again where memory allows it", "[recompute][cpu]") {
  const Layers layers = {kVision, kVision, kText};
  CHECK(*LeastRecompute(layers, 28) == std::vector<Recompute>(3, Recompute::kNone));
  CHECK(LeastRecompute({}, 0)->empty());
}

TEST_CASE("the cheapest layers are computed again first", "[recompute][cpu]") {
  // 27 of 28 bytes: a vision layer's attention alone suffices; 19: one vision layer in full.
  const Layers layers = {kVision, kText, kVision};
  const auto one = *LeastRecompute(layers, 27);
  CHECK(Sum(layers, one).seconds == 1);
  const auto full = *LeastRecompute(layers, 19);
  CHECK(Sum(layers, full).seconds == 3);
  CHECK(full[1] == Recompute::kNone);
}

TEST_CASE("what cannot fit is told", "[recompute][cpu]") {
  CHECK(LeastRecompute({kVision, kText}, 3).has_value());
  CHECK_FALSE(LeastRecompute({kVision, kText}, 2).has_value());
  CHECK_FALSE(LeastRecompute({}, -1).has_value());
}

TEST_CASE("recompute equals the best of all combinations", "[recompute][cpu]") {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> seconds(0, 20), bytes(1, 30), count(1, 7), options(1, 4);
  for (int round = 0; round < 300; ++round) {
    Layers layers(count(random));
    for (size_t i = 0; i < layers.size(); ++i) {
      if (i > 0 && round % 2 == 0 && i % 3 != 0) {
        layers[i] = layers[i - 1];  // a run of equal layers, as models have them
        continue;
      }
      for (int k = options(random); k-- > 0;) {
        layers[i].push_back({static_cast<Recompute>(k), 1.0 * seconds(random), bytes(random)});
      }
    }
    const LeastRecomputation shared(layers, 120);
    for (const int64_t budget : {-1, 10, 40, 80, 120}) {
      const double least = BruteForce(layers, 0, budget);
      const auto found = LeastRecompute(layers, budget);
      REQUIRE(shared.Within(budget) == found);
      REQUIRE(found.has_value() == (least < std::numeric_limits<double>::infinity()));
      if (!found) continue;
      const Total total = Sum(layers, *found);
      REQUIRE(total.seconds == least);
      REQUIRE(total.bytes <= budget);
    }
  }
}

TEST_CASE("a deep stage of two kinds of layer is settled exactly", "[recompute][cpu]") {
  Layers layers(45, kVision);
  layers.insert(layers.end(), 48, kText);
  // 834 bytes without; a text layer saves 6 for 4, a vision layer 9 for 3: all vision first.
  const auto found = *LeastRecompute(layers, 834 - 45 * 9 - 6);
  CHECK(Sum(layers, found).seconds == 45 * 3 + 4);
}

}  // namespace
}  // namespace equipoise
