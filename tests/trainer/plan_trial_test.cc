#include "trainer/planner/plan_trial.h"

#include <catch2/catch.hpp>

#include "configs/base/error.h"
#include "trainer/common/collective_error.h"

namespace equipoise {
namespace {

// Plans of so many data ranks, the more the faster by the prediction.
std::vector<ScoredPlan> Plans(const std::vector<int>& data) {
  std::vector<ScoredPlan> plans;
  for (const int ranks : data) {
    ScoredPlan& each = plans.emplace_back();
    each.plan = InlinePlan({.data = ranks});
    each.step_s = 1.0 / ranks;
  }
  return plans;
}

std::vector<int> Order(const PlanReport& report) {
  std::vector<int> order;
  for (const ScoredPlan& each : report.search.plans) order.push_back(each.plan.data());
  return order;
}

TEST_CASE("rounds take all plans in turn, every second one backwards", "[plan_trial][cpu]") {
  std::vector<int> order;
  const auto trials = TryPlans(Plans({8, 4, 2}), /*rounds=*/3, [&](const ScoredPlan& plan) {
    order.push_back(plan.plan.data());
    return std::vector<double>{10.0 - static_cast<double>(order.size()), 5};
  });
  CHECK(order == std::vector<int>{8, 4, 2, 2, 4, 8, 8, 4, 2});
  CHECK(trials[0].step_s == std::vector<double>{3, 4, 5, 5, 5, 9});  // ascending
  CHECK(trials[2].step_s == std::vector<double>{1, 5, 5, 5, 6, 7});
}

TEST_CASE("a plan that fails keeps its reason and is not run again", "[plan_trial][cpu]") {
  int runs = 0;
  const auto trials = TryPlans(Plans({8, 4}), /*rounds=*/3, [&](const ScoredPlan& plan) {
    if (plan.plan.data() == 4) return std::vector<double>{1};
    ++runs;
    throw CollectiveRunError("out of memory");
    return std::vector<double>();
  });
  CHECK(runs == 1);
  CHECK(trials[0].failure == "out of memory");
  CHECK(trials[1].step_s.size() == 3);
  CHECK(trials[1].failure.empty());
}

TEST_CASE("a failure that ranks have not agreed on ends the trial", "[plan_trial][cpu]") {
  const auto run = [](const ScoredPlan&) -> std::vector<double> { throw RunError("rank 1 left"); };
  CHECK_THROWS_AS(TryPlans(Plans({8}), 1, run), RunError);
}

TEST_CASE("the measured best comes first, plans that were not tried behind", "[plan_trial][cpu]") {
  PlanReport report;
  report.search.plans = Plans({8, 4, 2, 1});
  const std::vector<ScoredPlan> tried = Plans({8, 4, 2});
  RankByTrials({{tried[0], {}, "out of memory"}, {tried[1], {3, 4, 5}, ""}, {tried[2], {1, 2}, ""}},
               report);
  CHECK(Order(report) == std::vector<int>{2, 4, 8, 1});
  CHECK(report.trials[0].Percentile(0.5) == 2);
  CHECK(report.trials[1].Percentile(0.5) == 4);
  CHECK(report.trials[1].Percentile(0.1) == 3);
  CHECK(report.trials[1].Percentile(0.9) == 5);
  CHECK(report.trials[2].failure == "out of memory");
}

TEST_CASE("if all plans fail the best one's reason is told", "[plan_trial][cpu]") {
  PlanReport report;
  report.search.plans = Plans({8, 4});
  std::vector<PlanTrial> trials = {{Plans({8})[0], {}, "too large"}, {Plans({4})[0], {}, "x"}};
  CHECK_THROWS_WITH(RankByTrials(trials, report), Catch::Contains("too large"));
  CHECK_THROWS_AS(RankByTrials({}, report), CollectiveRunError);
}

}  // namespace
}  // namespace equipoise
