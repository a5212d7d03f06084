#pragma once

#include <vector>

#include "balance/costs/cluster.h"
#include "balance/costs/layer_cost_table.h"
#include "models/stages/stage_layout.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {

// A step of a data rank as the planner simulates it: compute ops, reductions and the optimizer's
// step, and what these take. Of an encoder that runs a step ahead (parallel/schedule/prefetch.h) it
// is one in the middle of a run: the features of its micro-batches are made, and it makes those of
// the next step, whose micro-batches are taken to be equal. So it is of passes that run ahead
// (parallel/schedule/pipedream_2bw.h).
struct PlannedStep {
  // `own`: the micro-batches, by number in the table. `ahead`: the encoder runs a step ahead.
  // REQUIRES, where it does: an encoder in the bubbles, frozen.
  PlannedStep(const StageLayout& stages, const LayerCostTable& table, const Cluster& cluster,
              const std::vector<int>& own, bool ahead);

  double seconds() const { return SimulateTimes(schedule, costs).step_s; }

  std::vector<int> packs;  // of the next step too, where the encoder or passes run ahead
  int taken = 0;           // micro-batches whose features are made
  SimulationCosts costs;
  Schedule schedule;
};

}  // namespace equipoise
