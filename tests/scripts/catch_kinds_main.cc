// A case of each kind, for count_cases_test: run with the names of those that are wanted.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <stdexcept>

#include "tests/skip_case.h"

namespace equipoise {
namespace {

TEST_CASE("passes") { CHECK(1 + 1 == 2); }
TEST_CASE("passes too") { CHECK(2 + 2 == 4); }
TEST_CASE("fails") { CHECK(1 + 1 == 3); }
TEST_CASE("throws") { throw std::runtime_error("thrown"); }
TEST_CASE("fails as it shall", "[!shouldfail]") { CHECK(1 + 1 == 3); }
TEST_CASE("skips") { testing::SkipCase("no GPU"); }
TEST_CASE("skips for each") {
  GENERATE(1, 2);
  testing::SkipCase("no fixtures");
}
TEST_CASE("asserts by throwing alone") {}
TEST_CASE("dies") {
  CHECK(true);
  std::abort();
}

}  // namespace
}  // namespace equipoise
