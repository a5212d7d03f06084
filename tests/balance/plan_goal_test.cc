#include "balance/search/plan_goal.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace equipoise {
namespace {

// A run on so many GPUs, at a price of 2 a GPU hour, with gigabytes between nodes for each rank.
RunFigures Run(int gpus, double hours, double gb = 0) {
  RunFigures run;
  run.gpus = gpus;
  run.hours = hours;
  run.cost = 2 * run.gpu_hours();
  run.samples_per_s = 1000 / hours;
  run.traffic = {1e9 * gb, 1e9};
  return run;
}

// Twice the GPUs take more than half the time; 48 are worse than 32 in all.
const std::vector<RunFigures>& Runs() {
  static const std::vector<RunFigures> kRuns = {Run(8, 80, 0), Run(16, 42, 1), Run(32, 22, 2),
                                                Run(48, 23, 3), Run(64, 12.5, 2)};
  return kRuns;
}

TEST_CASE("a plan is chosen by the objective among those that keep the limits",
          "[plan_goal][cpu]") {
  const struct {
    const char* name;
    PlanGoal goal;
    int gpus;  // 0: none keeps them
  } rows[] = {
      {"nothing asked: the shortest", {}, 64},
      {"a deadline: the cheapest in time", {.deadline_h = 30}, 32},
      {"a deadline on the dot", {.deadline_h = 22}, 32},
      {"a wide deadline", {.deadline_h = 1000}, 8},
      {"a budget: the shortest in it", {.budget = 1400}, 16},
      {"a deadline and a budget: the cheapest", {.deadline_h = 50, .budget = 1500}, 16},
      {"few GPUs", {.max_gpus = 47}, 32},
      {"the shortest in time", {.objective = Objective::kThroughput, .deadline_h = 30}, 64},
      {"the cheapest", {.objective = Objective::kCost}, 8},
      {"the fewest bytes", {.objective = Objective::kTraffic}, 8},
      {"the fewest bytes of all ranks in time",
       {.objective = Objective::kTraffic, .deadline_h = 30},
       32},
      {"too early", {.deadline_h = 12}, 0},
      {"too little money", {.budget = 1000}, 0},
      {"each of them, but not both", {.deadline_h = 30, .budget = 1300}, 0},
      {"too few GPUs", {.max_gpus = 4}, 0},
  };
  for (const auto& row : rows) {
    INFO(row.name);
    const std::optional<size_t> chosen = ChooseRun(row.goal, Runs());
    CHECK((chosen ? Runs()[*chosen].gpus : 0) == row.gpus);
  }
  CHECK_FALSE(ChooseRun({}, {}));
}

TEST_CASE("only what another run beats is off the front", "[plan_goal][cpu]") {
  CHECK(ParetoFront(Runs()) == std::vector<bool>{true, true, true, false, true});
  // Equals do not beat each other.
  CHECK(ParetoFront({Run(8, 5), Run(8, 5)}) == std::vector<bool>{true, true});
  // As short and cheap with more bytes is beaten.
  CHECK(ParetoFront({Run(8, 5, 2), Run(8, 5, 1)}) == std::vector<bool>{false, true});
  CHECK(ParetoFront({}).empty());
}

TEST_CASE("a miss says how much is missing, and what would be kept", "[plan_goal][cpu]") {
  const struct {
    PlanGoal goal;
    std::string more, text;
  } rows[] = {
      {{.deadline_h = 12},
       ", or goal.max_gpus of 128",
       "goal.deadline of 12 h: the fastest plan takes 12.5 h on 64 GPUs; allow 12.5 h, or "
       "goal.max_gpus of 128"},
      {{.budget = 1000},
       "",
       "goal.budget of 1000: the cheapest plan costs 1280 on 8 GPUs; allow 1280"},
      {{.max_gpus = 4}, "", "goal.max_gpus of 4: the plan is for 8 GPUs; allow 8"},
      {{.max_gpus = 16, .deadline_h = 12},
       "",
       "goal.deadline of 12 h: the fastest plan takes 42 h on 16 GPUs; allow 42 h"},
      {{.deadline_h = 12, .budget = 1350},
       "",
       "goal.deadline of 12 h: the fastest plan within the budget takes 42 h on 16 GPUs; allow "
       "42 h"},
      {{.deadline_h = 30, .budget = 1000},
       "",
       "goal.budget of 1000: the cheapest plan within the deadline costs 1410 on 32 GPUs; allow "
       "1410"},
      {{.deadline_h = 30, .budget = 1300},
       "",
       "goal.deadline of 30 h and goal.budget of 1300: the fastest plan within the budget takes "
       "80 h on 8 GPUs and costs 1280, the cheapest within the deadline costs 1410 on 32 GPUs and "
       "takes 22 h; allow 80 h and 1300, or 30 h and 1410"},
      {{.deadline_h = 12, .budget = 1000},
       "",
       "goal.deadline of 12 h and goal.budget of 1000: the fastest plan takes 12.5 h on 64 GPUs "
       "and costs 1600, the cheapest costs 1280 on 8 GPUs and takes 80 h; allow 12.5 h and 1600, "
       "or 80 h and 1280"},
  };
  for (const auto& row : rows) {
    REQUIRE_FALSE(ChooseRun(row.goal, Runs()));
    CHECK(DescribeMiss(row.goal, Runs(), row.more) == row.text);
  }
}

TEST_CASE("what a miss tells to allow is enough", "[plan_goal][cpu]") {
  for (const double hours : {0.001234, 1.0 / 3, 7.0, 31.25, 99.99, 1234.5, 65536.7}) {
    const std::string text = DescribeMiss({.deadline_h = hours / 2}, {Run(8, hours)});
    const double allowed = std::stod(text.substr(text.rfind("allow ") + 6));
    CHECK(ChooseRun({.deadline_h = allowed}, {Run(8, hours)}));
    CHECK(allowed <= 1.01 * hours);
  }
}

TEST_CASE("sizes of a cluster are halves of a node and whole nodes", "[plan_goal][cpu]") {
  using Sizes = std::vector<int>;
  CHECK(ClusterSizes(1, 8) == Sizes{1});
  CHECK(ClusterSizes(6, 8) == Sizes{1, 2, 4});
  CHECK(ClusterSizes(8, 8) == Sizes{1, 2, 4, 8});
  CHECK(ClusterSizes(44, 8) == Sizes{1, 2, 4, 8, 16, 24, 32, 40});
  CHECK(ClusterSizes(88, 8) == Sizes{1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 88});
  CHECK(ClusterSizes(3, 1) == Sizes{1, 2, 3});
  CHECK(ClusterSizes(5, 3) == Sizes{1, 2, 3});
  const Sizes many = ClusterSizes(64 * 8, 8);
  CHECK(many.back() == 512);
  CHECK(many.size() == 3 + 8 + 3 * 4);
}

}  // namespace
}  // namespace equipoise
