#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "balance/search/objective.h"
#include "balance/search/plan_traffic.h"

namespace equipoise {

// The section `goal`: what a run of train.steps must keep, and what its plan is chosen by.
struct PlanGoal {
  Objective objective = Objective::kAuto;
  int max_gpus = 0;       // 0: as many as the cluster has
  double deadline_h = 0;  // 0: none
  double budget = 0;      // in the currency of the price of a GPU hour; 0: none
  bool given() const {
    return objective != Objective::kAuto || max_gpus > 0 || deadline_h > 0 || budget > 0;
  }
};

// The objective, with kAuto resolved.
Objective ObjectiveOf(const PlanGoal& goal);

// What a run takes by one plan.
struct RunFigures {
  int gpus = 1;
  double hours = 0, cost = 0;  // cost: 0 where no price is known
  double samples_per_s = 0;
  RankTraffic traffic;
  double gpu_hours() const { return gpus * hours; }
};

// Whether a run keeps every limit.
bool Keeps(const PlanGoal& goal, const RunFigures& run);

// Which of the runs is best by the objective among those that keep the limits; nothing where none
// does. Of equals the first.
std::optional<size_t> ChooseRun(const PlanGoal& goal, const std::vector<RunFigures>& runs);

// Which runs are on the Pareto front: no other is as good in hours, GPU hours and bytes between
// nodes, and better in one of them.
std::vector<bool> ParetoFront(const std::vector<RunFigures>& runs);

// Why no run keeps the limits, in one line: what is asked, the nearest runs, and values that would
// be kept: "goal.deadline of 20 h: the fastest plan takes 31 h on 64 GPUs; allow 31 h". `more`: in
// which other way a deadline can be kept, such as ", or goal.max_gpus of 128".
// REQUIRES: there are runs, and none keeps all limits.
std::string DescribeMiss(const PlanGoal& goal, const std::vector<RunFigures>& runs,
                         const std::string& more = "");

// The sizes of a cluster that are tried, ascending, up to `most` GPUs: powers of two within a node,
// then whole nodes, of which beyond 8 only four for each doubling; the most nodes are always one.
std::vector<int> ClusterSizes(int most, int per_node);

}  // namespace equipoise
