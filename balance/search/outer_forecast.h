#pragma once

#include <cstdint>

#include "balance/costs/cluster.h"
#include "balance/costs/cost_model.h"
#include "parallel/plan.h"

namespace equipoise {

// The outer step of islands (parallel/diloco/outer_optimizer.h) whose models have one plan.
struct OuterForecast {
  double seconds = 0;
  double bytes = 0;            // that a rank sends, as the mean over all ranks
  bool between_nodes = false;  // whether islands are in several nodes
};

// REQUIRES: plan.stage_begins fits the model. `cluster`: of an island's ranks; `element_bytes`: of
// what islands send.
OuterForecast ForecastOuterStep(const CostModel& costs, const Plan& plan, const Cluster& cluster,
                                int islands, int64_t element_bytes);

}  // namespace equipoise
