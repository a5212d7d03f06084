#pragma once

#include <vector>

#include "balance/costs/cost_model.h"
#include "balance/search/plan_request.h"
#include "balance/search/plan_search.h"

namespace equipoise {

// Times and bytes of a stage for one micro-batch, averaged over those of a step.
struct StageForecast {
  int pipeline_rank = 0;
  int first_layer = 0, end_layer = 0;
  double forward_s = 0;
  double backward_s = 0;   // what is computed again included
  double recompute_s = 0;  // of it
};

// Where the ranks wait, as shares of the step; together the bubble share. Each is what the step
// loses when one more thing is as it is: first all ranks alike and no communication, then stages,
// micro-batches, communication, data ranks as they are. So a part can be slightly negative.
struct BubbleShares {
  double fill_and_drain = 0;  // of even stages and even micro-batches
  double uneven_stages = 0;
  double uneven_micro_batches = 0;
  double communication = 0;  // transfers and reductions that no computation hides
  double uneven_data_ranks = 0;
  double total() const {
    return fill_and_drain + uneven_stages + uneven_micro_batches + communication +
           uneven_data_ranks;
  }
};

// From the median of a normal distribution to its p10 and p90, in standard deviations.
constexpr double kTenthPercentile = 1.2816;

struct StepPercentiles {
  double p10 = 0, p50 = 0, p90 = 0;  // seconds
};

struct PlanForecast {
  StepPercentiles step_s;  // over the workload's steps and the cost model's error
  double error_band = 0;   // one standard deviation of a predicted time, as a share of it
  std::vector<StageForecast> stages;
  BubbleShares bubbles;
  // Share of the step that would be saved without any communication: between tensor ranks, between
  // stages, of gradients and updated weights.
  double communication_share = 0;
  double tokens_per_s = 0, packs_per_s = 0;
  // FLOPs of forward and backward without recomputation, over the peak of all ranks.
  double mfu = 0;
};

// FLOPs of a micro-batch's forward and of its two gradients where they are wanted; what is computed
// again does not count.
double ModelFlops(const CostModel& costs, const LayerLoad& load);

// The forecast of a plan that SearchPlans() has found. LibTorch-free, deterministic.
PlanForecast ForecastPlan(const PlanRequest& request, const Plan& plan);

}  // namespace equipoise
