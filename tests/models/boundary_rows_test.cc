#include "models/stages/boundary_rows.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>

#include <catch2/catch.hpp>

namespace equipoise {
namespace {

TEST_CASE("a stage with several stages before it takes their rows in order", "[stages][cpu]") {
  const at::Tensor a = at::randn({3, 4}), b = at::randn({1, 4}), none = at::randn({0, 4});
  CHECK_FALSE(JoinRows({}).defined());
  CHECK(JoinRows({a}).is_same(a));
  const at::Tensor joined = JoinRows({a, none, b});
  CHECK(joined.equal(at::cat({a, b})));
  const std::vector<at::Tensor> parts = SplitRows(joined, {{3, 4}, {0, 4}, {1, 4}});
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].equal(a));
  CHECK(parts[1].size(0) == 0);
  CHECK(parts[2].equal(b));
  CHECK(SplitRows(a, {{3, 4}})[0].data_ptr() == a.data_ptr());
  CHECK(SplitRows(a, {}).empty());  // of the first stage
  CHECK_THROWS_WITH(SplitRows(joined, {{3, 4}}), Catch::Matchers::Contains("3 rows"));
}

}  // namespace
}  // namespace equipoise
