#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "balance/search/objective.h"
#include "configs/yaml/fields.h"

namespace equipoise {

// The `goal` section of a configuration; trainer/planner/goal_search.h.
struct GoalSection {
  Objective objective = Objective::kAuto;
  std::optional<int64_t> max_gpus;
  std::string deadline;
  std::optional<double> budget;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("objective", objective,
          "what is chosen among the plans that keep the keys below: the shortest run (throughput), "
          "the cheapest, or the one that sends the fewest bytes between nodes; auto: the cheapest "
          "under a deadline, else the shortest");
    visit("max_gpus", max_gpus,
          "the planner chooses how many GPUs to use, up to this number, in place of "
          "cluster.nodes; absent = all of the cluster. A run that is started has the ranks that "
          "it has",
          Between(1, 1 << 20));
    visit("deadline", deadline,
          "by when train.steps must be over: hours such as 20, or a date such as 2030-12-31 or "
          "2030-12-31T18:00 (UTC); empty = none");
    visit("budget", budget,
          "what they may cost, in the currency of cluster.price_per_gpu_hour; absent or 0 = "
          "no limit",
          AtLeast(0));
  }
};

}  // namespace equipoise
