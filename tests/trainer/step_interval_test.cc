#include "trainer/settings/step_interval.h"

#include <catch2/catch.hpp>
#include <vector>

namespace equipoise {
namespace {

std::vector<int64_t> DueSteps(const StepInterval& interval, int64_t steps) {
  std::vector<int64_t> due;
  for (int64_t step = 1; step <= steps; ++step) {
    if (interval.IsDue(step)) due.push_back(step);
  }
  return due;
}

TEST_CASE("an interval ends with every so many steps, or with the step that ends a pass",
          "[step_interval][cpu]") {
  using Steps = std::vector<int64_t>;
  CHECK(DueSteps(StepInterval(3, 0, 7), 10) == Steps{3, 6, 9});
  CHECK(DueSteps(StepInterval(1, 0, 0), 3) == Steps{1, 2, 3});
  CHECK(DueSteps(StepInterval(0, 0, 7), 10).empty());
  CHECK_FALSE(StepInterval(0, 0, 7).on());
  CHECK(DueSteps(StepInterval(3, 1, 3.4), 11) == Steps{4, 7, 11});  // 3.4, 6.8, 10.2
  CHECK(DueSteps(StepInterval(0, 0.5, 5), 10) == Steps{3, 5, 8, 10});
  CHECK(DueSteps(StepInterval(0, 1, 0.25), 3) == Steps{1, 2, 3});  // several passes a step
  // 0.1 x 3 is a little more than 0.3, and 3 steps complete 10 such intervals all the same.
  CHECK(DueSteps(StepInterval(0, 0.1, 30), 9) == Steps{3, 6, 9});
  CHECK(DueSteps(StepInterval(0, 0.7, 10), 21) == Steps{7, 14, 21});
}

}  // namespace
}  // namespace equipoise
