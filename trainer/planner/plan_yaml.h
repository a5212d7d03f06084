#pragma once

#include <string>
#include <vector>

#include "parallel/plan.h"

namespace equipoise {

// Predictions of the planner for a plan; zeros where it was not asked.
struct PlanPrediction {
  double step_s = 0;              // median
  double error_band = 0;          // one standard deviation, as a share
  int64_t peak_bytes = 0;         // of the fullest rank
  int64_t tiles = 0, tokens = 0;  // limits of a micro-batch
  // Packs of a step, where the limits are not those that the configuration asks for; else 0.
  int64_t global_batch = 0;
  std::vector<int64_t> memory_bytes = {};  // forecast of each pipeline rank's peak; may be empty
};

// RUN/plan.yaml: the whole plan in the words of `parallel` and `balance`, so that it can be pinned.
std::string PlanToYaml(const Plan& plan, const PlanPrediction& prediction);

}  // namespace equipoise
