#pragma once

#include <vector>

#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {

// When each op of an LLM schedule runs if the encoder is to disturb it least (Optimus, section
// 4.3): every backward as early as it can, so that gradients for the encoder come early, every
// forward as late as the op that waits for it allows, so that its inputs may come late. The step
// takes no longer than it does as the simulator runs it.
struct Timetable {
  double step_s = 0;
  std::vector<std::vector<double>> start_s, end_s;  // [rank][position]
  // The dependency points: when the first stage begins the forward of a micro-batch (F_i), and when
  // it has the gradient of its input (B_i).
  std::vector<double> forward_s, backward_s;  // [micro-batch]
};

// REQUIRES: compute ops only. `first_stage`: the stage that the encoder feeds. Throws ConfigError
// when the schedule deadlocks.
Timetable MakeTimetable(const Schedule& schedule, const SimulationCosts& costs, int first_stage);

// Seconds on the link from one stage to another, without waiting for it; 0 on one rank.
double TransferSeconds(const Schedule& schedule, const SimulationCosts& costs, const Op& send);

}  // namespace equipoise
