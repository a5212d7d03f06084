#include "parallel/zero/step_bound.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

namespace equipoise {
namespace {

const double kInf = std::numeric_limits<double>::infinity();

// AdamW on one element in fp32, as the optimizer computes.
struct Element {
  float p, m, v;
  void Step(float g, const StepSize& s) {
    const auto lr = static_cast<float>(s.lr), decay = static_cast<float>(s.weight_decay);
    const auto b1 = static_cast<float>(s.beta1), b2 = static_cast<float>(s.beta2);
    p *= 1 - lr * decay;
    m += (1 - b1) * (g - m);
    v = b2 * v + (1 - b2) * g * g;
    const double n = static_cast<double>(s.number);
    const auto size = static_cast<float>(s.lr / (1 - std::pow(s.beta1, n)));
    const auto root = static_cast<float>(std::sqrt(1 - std::pow(s.beta2, n)));
    p -= size * m / (std::sqrt(v) / root + static_cast<float>(s.eps));
  }
};

TEST_CASE("a step within a safe bound stays finite and within it", "[zero][cpu]") {
  std::mt19937_64 random(1);
  const auto draw = [&](double low, double high) {  // even in the exponent, of either sign
    const double x = std::pow(10, std::uniform_real_distribution<double>(low, high)(random));
    return random() % 2 == 0 ? x : -x;
  };
  int safe = 0;
  for (int i = 0; i < 20000; ++i) {
    Element e{static_cast<float>(draw(-5, 38)), static_cast<float>(draw(-30, 38)),
              std::abs(static_cast<float>(draw(-37, 38)))};
    const auto g = static_cast<float>(draw(-30, 22));
    StepSize step{std::abs(g),
                  std::abs(draw(-9, 30)),
                  std::abs(draw(-4, 3)),
                  0.9,
                  0.95,
                  std::abs(draw(-12, -3)),
                  1 + i % 40};
    const StepBound bound = StepBound{std::abs(e.p), std::abs(e.m), e.v}.After(step);
    if (!bound.safe()) continue;
    ++safe;
    e.Step(g, step);
    REQUIRE(std::abs(e.p) <= 1.001 * bound.weight);
    REQUIRE(std::abs(e.m) <= 1.001 * bound.average);
    REQUIRE(e.v <= 1.001 * bound.square);
  }
  CHECK(safe > 1000);
}

TEST_CASE("rounded weights are within a bound that grows with them", "[zero][cpu]") {
  StepSize step{1, 1e-3, 0, 0.9, 0.999, 1e-8, 1};
  const double exact = StepBound{1, 1, 1}.After(step).weight;
  step.rounding = 1.0 / 128;
  CHECK(StepBound{1, 1, 1}.After(step).weight == Approx(exact * 129 / 128));
}

TEST_CASE("no number of ordinary steps leaves the safe range", "[zero][cpu]") {
  StepBound bound{10, 0, 0};
  for (int64_t n = 1; n <= 3'000'000; ++n) bound = bound.After({1, 1e-2, 0.1, 0.9, 0.95, 1e-8, n});
  CHECK(bound.safe());
}

TEST_CASE("steps that may overflow are not safe", "[zero][cpu]") {
  const StepBound small{1, 1, 1};
  CHECK(small.After({1, 1e-3, 0.1, 0.9, 0.999, 1e-8, 1}).safe());
  CHECK_FALSE(small.After({1, 1e38, 0.1, 0.9, 0.999, 1e-8, 1}).safe());     // learning rate
  CHECK_FALSE(small.After({1e19, 1e-3, 0.1, 0.9, 0.999, 1e-8, 1}).safe());  // its square
  CHECK_FALSE(small.After({1, 1e-3, 0.1, 0.9, 0.999, 0, 1}).safe());        // 0 / 0
  CHECK_FALSE(small.After({1, 1e20, 1e20, 0.9, 0.999, 1, 1}).safe());       // decay
  CHECK_FALSE(small.After({kInf, 1e-3, 0.1, 0.9, 0.999, 1e-8, 1}).safe());
  CHECK_FALSE(small.After({std::nan(""), 1e-3, 0.1, 0.9, 0.999, 1e-8, 1}).safe());
  CHECK_FALSE(StepBound{3e38, 1, 1}.After({1, 1e-3, 0, 0.9, 0.999, 1e-8, 1}).safe());
  CHECK_FALSE(StepBound{1, kInf, 1}.After({1, 1e-3, 0, 0.9, 0.999, 1e-8, 1}).safe());
  CHECK_FALSE(StepBound{1, 1, kInf}.After({1, 1e-3, 0, 0.9, 0.999, 1e-8, 1}).safe());
}

}  // namespace
}  // namespace equipoise
