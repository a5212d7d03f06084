#include "balance/search/plan_goal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "configs/base/error.h"

namespace equipoise {
namespace {

constexpr int kAllNodes = 8;     // up to as many, every number of nodes is tried
constexpr int kPerDoubling = 4;  // numbers of nodes beyond, for each doubling

// What an objective compares, first things first.
std::array<double, 3> Rank(Objective objective, const RunFigures& run) {
  switch (objective) {
    case Objective::kCost:
      return {run.gpu_hours(), run.hours, 0};
    case Objective::kTraffic:
      return {run.gpus * run.traffic.between_nodes_bytes, run.gpus * run.traffic.within_node_bytes,
              run.hours};
    case Objective::kAuto:
    case Objective::kThroughput:
      break;
  }
  return {run.hours, run.gpu_hours(), 0};
}

bool InTime(const PlanGoal& goal, const RunFigures& run) {
  return goal.deadline_h <= 0 || run.hours <= goal.deadline_h;
}

bool InBudget(const PlanGoal& goal, const RunFigures& run) {
  return goal.budget <= 0 || run.cost <= goal.budget;
}

// The value rounded up to three digits: what may be asked for instead.
double RoundedUp(double value) {
  if (value <= 0) return 0;
  const double unit = std::pow(10, std::floor(std::log10(value)) - 2);
  return std::ceil(value / unit) * unit;
}

std::string Hours(const RunFigures& run) { return fmt::format("{:g} h", RoundedUp(run.hours)); }
std::string Cost(const RunFigures& run) { return fmt::format("{:g}", RoundedUp(run.cost)); }
std::string Gpus(const RunFigures& run) {
  return fmt::format("{} GPU{}", run.gpus, run.gpus == 1 ? "" : "s");
}

using Runs = std::vector<RunFigures>;

template <class Keep>
Runs Those(const Runs& runs, const Keep& keep) {
  Runs kept;
  std::copy_if(runs.begin(), runs.end(), std::back_inserter(kept), keep);
  return kept;
}

const RunFigures& Best(Objective objective, const Runs& runs) {
  return *std::min_element(runs.begin(), runs.end(), [&](const auto& a, const auto& b) {
    return Rank(objective, a) < Rank(objective, b);
  });
}

}  // namespace

Objective ObjectiveOf(const PlanGoal& goal) {
  if (goal.objective != Objective::kAuto) return goal.objective;
  return goal.deadline_h > 0 ? Objective::kCost : Objective::kThroughput;
}

bool Keeps(const PlanGoal& goal, const RunFigures& run) {
  const bool few = goal.max_gpus == 0 || run.gpus <= goal.max_gpus;
  return few && InTime(goal, run) && InBudget(goal, run);
}

std::optional<size_t> ChooseRun(const PlanGoal& goal, const std::vector<RunFigures>& runs) {
  const Objective objective = ObjectiveOf(goal);
  std::optional<size_t> best;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!Keeps(goal, runs[i])) continue;
    if (!best || Rank(objective, runs[i]) < Rank(objective, runs[*best])) best = i;
  }
  return best;
}

std::vector<bool> ParetoFront(const std::vector<RunFigures>& runs) {
  const auto values = [](const RunFigures& run) {
    return std::array{run.hours, run.gpu_hours(), run.gpus * run.traffic.between_nodes_bytes};
  };
  std::vector<bool> front;
  for (const RunFigures& run : runs) {
    const auto own = values(run);
    front.push_back(std::none_of(runs.begin(), runs.end(), [&](const RunFigures& other) {
      const auto those = values(other);
      bool as_good = true;
      for (size_t i = 0; i < own.size(); ++i) as_good = as_good && those[i] <= own[i];
      return as_good && those != own;
    }));
  }
  return front;
}

std::string DescribeMiss(const PlanGoal& goal, const std::vector<RunFigures>& runs,
                         const std::string& more) {
  const Runs few = Those(
      runs, [&](const RunFigures& run) { return goal.max_gpus == 0 || run.gpus <= goal.max_gpus; });
  if (few.empty()) {
    const RunFigures& run = *std::min_element(
        runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.gpus < b.gpus; });
    return fmt::format("goal.max_gpus of {}: the plan is for {}; allow {}", goal.max_gpus,
                       Gpus(run), run.gpus);
  }
  const Runs in_time = Those(few, [&](const RunFigures& run) { return InTime(goal, run); });
  const Runs in_budget = Those(few, [&](const RunFigures& run) { return InBudget(goal, run); });
  const std::string deadline = fmt::format("deadline of {:g} h", goal.deadline_h);
  const std::string budget = fmt::format("budget of {:g}", goal.budget);
  if (in_time.empty() && !in_budget.empty()) {
    const RunFigures& run = Best(Objective::kThroughput, in_budget);
    return fmt::format("goal.{}: the {}plan{} takes {} on {}; allow {}{}", deadline,
                       runs.size() > 1 ? "fastest " : "",
                       goal.budget > 0 ? " within the budget" : "", Hours(run), Gpus(run),
                       Hours(run), more);
  }
  if (in_budget.empty() && !in_time.empty()) {
    const RunFigures& run = Best(Objective::kCost, in_time);
    return fmt::format("goal.{}: the {}plan{} costs {} on {}; allow {}", budget,
                       runs.size() > 1 ? "cheapest " : "",
                       goal.deadline_h > 0 ? " within the deadline" : "", Cost(run), Gpus(run),
                       Cost(run));
  }
  EQUIPOISE_CHECK(goal.deadline_h > 0 && goal.budget > 0, "a run keeps the goal");
  const bool apart = !in_time.empty();  // each limit is kept by some run, both by none
  const RunFigures& cheap = Best(Objective::kCost, apart ? in_time : few);
  const RunFigures& fast = Best(Objective::kThroughput, apart ? in_budget : few);
  const auto both = [&](const RunFigures& run) {
    return fmt::format("{:g} h and {:g}", std::max(goal.deadline_h, RoundedUp(run.hours)),
                       std::max(goal.budget, RoundedUp(run.cost)));
  };
  return fmt::format(
      "goal.{} and goal.{}: the fastest plan{} takes {} on {} and costs {}, the cheapest{} costs "
      "{} on {} and takes {}; allow {}, or {}{}",
      deadline, budget, apart ? " within the budget" : "", Hours(fast), Gpus(fast), Cost(fast),
      apart ? " within the deadline" : "", Cost(cheap), Gpus(cheap), Hours(cheap), both(fast),
      both(cheap), more);
}

std::vector<int> ClusterSizes(int most, int per_node) {
  std::vector<int> sizes;
  for (int gpus = 1; gpus < per_node && gpus <= most; gpus *= 2) sizes.push_back(gpus);
  const int most_nodes = most / per_node;
  int step = 1, doubled = 2 * kAllNodes;
  for (int nodes = 1; nodes <= most_nodes; nodes += step) {
    sizes.push_back(nodes * per_node);
    if (nodes == kAllNodes) step = kAllNodes / kPerDoubling;
    if (nodes == doubled) {
      step *= 2;
      doubled *= 2;
    }
  }
  if (most_nodes > 0 && sizes.back() != most_nodes * per_node) {
    sizes.push_back(most_nodes * per_node);
  }
  return sizes;
}

}  // namespace equipoise
