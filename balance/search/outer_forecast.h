#pragma once

#include <cstdint>

#include "balance/search/plan_forecast.h"
#include "balance/search/plan_request.h"
#include "parallel/plan.h"

namespace equipoise {

// Islands (DiLoCo, parallel/diloco/outer_optimizer.h) whose models have one plan, and their outer
// steps.
struct IslandsForecast {
  int count = 1;
  int64_t every = 0;           // steps; 0: there are no outer steps
  double outer_s = 0;          // seconds of one
  double outer_bytes = 0;      // that a rank sends in one, as the mean over all ranks
  bool between_nodes = false;  // whether islands are in several nodes

  // Of a step's time, in the mean.
  double outer_s_per_step() const { return every > 0 ? outer_s / static_cast<double>(every) : 0; }
  double outer_bytes_per_step() const {
    return every > 0 ? outer_bytes / static_cast<double>(every) : 0;
  }
};

// REQUIRES: plan.stage_begins fits the model.
IslandsForecast ForecastIslands(const PlanRequest& request, const Plan& plan);

// The forecast of one island's steps as that of all: rates are those of all of them over time,
// outer steps included, and traffic has the bytes of an outer step in the mean. A step's seconds
// stay.
PlanForecast OfAllIslands(PlanForecast one, const IslandsForecast& islands);

}  // namespace equipoise
