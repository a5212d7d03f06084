#pragma once

#include <string>
#include <vector>

#include "parallel/plan.h"

namespace equipoise {

// Predictions of the planner for a plan; zeros when there was no search.
struct PlanPrediction {
  double step_s = 0;              // median seconds of a step
  double error_band = 0;          // standard deviation of step_s, as a share of it
  int64_t peak_bytes = 0;         // peak memory of the fullest rank
  int64_t tiles = 0, tokens = 0;  // limits of a micro-batch
  // Packs of a step when the limits are not those of the configuration; else 0.
  int64_t global_batch = 0;
  std::vector<int64_t> memory_bytes = {};  // forecast of each pipeline rank's peak; may be empty
};

// The text of RUN/plan.yaml: the whole plan with the keys of `parallel` and `balance`, so that it
// can be pinned by a configuration.
std::string PlanToYaml(const Plan& plan, const PlanPrediction& prediction);

}  // namespace equipoise
