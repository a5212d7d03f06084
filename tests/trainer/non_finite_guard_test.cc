#include "trainer/non_finite_guard.h"

#include <catch2/catch.hpp>
#include <limits>

#include "configs/error.h"

namespace equipoise {
namespace {

const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInf = std::numeric_limits<double>::infinity();

TEST_CASE("finite steps are taken, others are not", "[guard][cpu]") {
  NonFiniteGuard guard;
  CHECK(guard.MayTake({1, 2.5, 0.1, {}}));
  CHECK(guard.warning().empty());
  CHECK_FALSE(guard.MayTake({2, kNan, 0.1, {"a.jsonl:7", "a.jsonl:9"}}));
  CHECK(guard.warning() ==
        "step 2: loss nan, gradient norm 0.1: skipped, 1 in a row; samples: a.jsonl:7, a.jsonl:9");
  CHECK_FALSE(guard.MayTake({3, 2.5, kInf, {}}));
  CHECK(guard.in_a_row() == 2);
}

TEST_CASE("a step that is taken ends the row", "[guard][cpu]") {
  NonFiniteGuard guard;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) CHECK_FALSE(guard.MayTake({i, kNan, 1, {}}));
    CHECK(guard.MayTake({4, 1, 1, {}}));
    CHECK(guard.in_a_row() == 0);
    CHECK(guard.warning().empty());
  }
}

TEST_CASE("the fifth refusal in a row ends the run, over a resume too", "[guard][cpu]") {
  NonFiniteGuard guard(/*in_a_row=*/3);
  CHECK_FALSE(guard.MayTake({8, kNan, 1, {"a.jsonl:1"}}));
  try {
    guard.MayTake({9, 1, kNan, {"a.jsonl:2"}});
    FAIL("no error");
  } catch (const RunError& error) {
    const std::string text = error.what();
    CHECK(text.find("step 9") == 0);
    CHECK(text.find("5 in a row; samples: a.jsonl:2") != std::string::npos);
    CHECK(error.code() == ExitCode::kRunFailed);
  }
}

TEST_CASE("a long list of samples is cut", "[guard][cpu]") {
  NonFiniteGuard guard;
  guard.MayTake({1, kNan, 1, std::vector<std::string>(20, "x")});
  CHECK(guard.warning().find("and 4 more") != std::string::npos);
}

}  // namespace
}  // namespace equipoise
