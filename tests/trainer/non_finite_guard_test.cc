#include "trainer/loop/non_finite_guard.h"

#include <catch2/catch.hpp>
#include <limits>

namespace equipoise {
namespace {

const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInf = std::numeric_limits<double>::infinity();

bool Took(NonFiniteGuard& guard, const NonFiniteGuard::Step& step) {
  if (!guard.MayTry(step)) return false;
  guard.Tried(step, true);
  return true;
}

TEST_CASE("finite steps are tried, others are not", "[guard][cpu]") {
  NonFiniteGuard guard;
  CHECK(Took(guard, {1, 2.5, 0.1, 1e-3, {}}));
  CHECK(guard.warning().empty());
  CHECK_FALSE(guard.MayTry({2, kNan, 0.1, 1e-3, {"a.jsonl:7", "a.jsonl:9"}}));
  CHECK(guard.warning() ==
        "step 2: loss nan, gradient norm 0.1: skipped, 1 in a row; samples: a.jsonl:7, a.jsonl:9");
  CHECK_FALSE(guard.MayTry({3, 2.5, kInf, 1e-3, {}}));
  CHECK(guard.in_a_row() == 2);
}

TEST_CASE("a scale of the loss that can become no smaller is told", "[guard][cpu]") {
  NonFiniteGuard guard;
  NonFiniteGuard::Step step{4, 2.5, kInf, 1e-3, {"a.jsonl:7"}};
  step.least_scale = 1024;
  CHECK_FALSE(guard.MayTry(step));
  CHECK(guard.warning() ==
        "step 4: loss 2.5, gradient norm inf, loss scale at its minimum of 1024: skipped, 1 in a "
        "row; samples: a.jsonl:7");
}

TEST_CASE("a step that the optimizer refuses is skipped too", "[guard][cpu]") {
  NonFiniteGuard guard(/*in_a_row=*/2);
  const NonFiniteGuard::Step step{7, 2.5, 0.1, 1e38, {}};
  CHECK(guard.MayTry(step));
  CHECK(guard.in_a_row() == 2);  // until it is taken
  guard.Tried(step, false);
  CHECK(guard.in_a_row() == 3);
  CHECK(guard.warning() ==
        "step 7: loss 2.5, gradient norm 0.1, learning rate 1e+38: weights or moments would be "
        "infinite or no numbers: skipped, 3 in a row");
  CHECK_FALSE(guard.doubts_weights());  // they gave a finite loss
  CHECK(guard.MayTry(step));
  CHECK(guard.warning().empty());
}

TEST_CASE("weights are doubted when no step in the row had a finite loss", "[guard][cpu]") {
  NonFiniteGuard guard;
  CHECK_FALSE(guard.doubts_weights());
  const NonFiniteGuard::Step good{1, 2.5, 0.1, 1e38, {}}, bad{2, kNan, 0.1, 1e-3, {}};
  CHECK_FALSE(guard.MayTry(bad));
  CHECK(guard.doubts_weights());
  CHECK(guard.MayTry(good));
  guard.Tried(good, false);
  CHECK_FALSE(guard.MayTry(bad));
  CHECK_FALSE(guard.doubts_weights());
  NonFiniteGuard resumed(guard.in_a_row(), guard.tried());
  CHECK_FALSE(resumed.MayTry(bad));
  CHECK_FALSE(resumed.doubts_weights());
  CHECK(Took(guard, good));
  CHECK_FALSE(guard.MayTry(bad));
  CHECK(guard.doubts_weights());
}

TEST_CASE("a finite loss ends the row, though its gradients overflow", "[guard][cpu]") {
  NonFiniteGuard guard;
  const NonFiniteGuard::Step bad{1, kNan, 0.1, 1e-3, {}};
  for (int i = 0; i < 4; ++i) CHECK_FALSE(guard.MayTry(bad));
  guard.SawFiniteLoss();
  CHECK(guard.in_a_row() == 0);
  CHECK_FALSE(guard.doubts_weights());
  CHECK_FALSE(guard.MayTry(bad));
  CHECK_FALSE(guard.exhausted());
}

TEST_CASE("a step that is taken ends the row", "[guard][cpu]") {
  NonFiniteGuard guard;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) CHECK_FALSE(guard.MayTry({i, kNan, 1, 1e-3, {}}));
    CHECK_FALSE(guard.exhausted());
    CHECK(Took(guard, {4, 1, 1, 1e-3, {}}));
    CHECK(guard.in_a_row() == 0);
    CHECK(guard.warning().empty());
  }
}

TEST_CASE("the fifth in a row is too much, over a resume too", "[guard][cpu]") {
  NonFiniteGuard guard(/*in_a_row=*/3);
  CHECK_FALSE(guard.MayTry({8, kNan, 1, 1e-3, {"a.jsonl:1"}}));
  CHECK_FALSE(guard.exhausted());
  CHECK_FALSE(guard.MayTry({9, 1, kNan, 1e-3, {"a.jsonl:2"}}));
  CHECK(guard.exhausted());
  CHECK(guard.warning().find("step 9") == 0);
  CHECK(guard.warning().find("5 in a row; samples: a.jsonl:2") != std::string::npos);
}

TEST_CASE("a long list of samples is cut", "[guard][cpu]") {
  NonFiniteGuard guard;
  guard.MayTry({1, kNan, 1, 1e-3, std::vector<std::string>(20, "x")});
  CHECK(guard.warning().find("and 4 more") != std::string::npos);
}

}  // namespace
}  // namespace equipoise
