#pragma once

#include <vector>

#include "balance/costs/cost_model.h"
#include "balance/search/plan_request.h"
#include "balance/search/plan_search.h"
#include "balance/search/plan_traffic.h"

namespace equipoise {

// Times and bytes of a stage for one micro-batch, averaged over those of a step.
struct StageForecast {
  int pipeline_rank = 0;
  int first_layer = 0, end_layer = 0;
  double forward_s = 0;
  double backward_s = 0;   // with recomputation
  double recompute_s = 0;  // part of backward_s
};

// The bubble, as shares of the step by cause. The step is idealized (equal stages, micro-batches
// and data ranks, no communication), and made real in turn: stages, micro-batches, communication,
// data ranks. A share is the time that one of these adds, so it can be slightly negative.
struct BubbleShares {
  double fill_and_drain = 0;  // with equal stages and micro-batches
  double uneven_stages = 0;
  double uneven_micro_batches = 0;
  // Transfers and reductions that no computation hides, and likewise what passes wait for of state
  // that is shared out (ZeRO 2 and 3) or in host memory.
  double communication = 0;
  double uneven_data_ranks = 0;
  double total() const {
    return fill_and_drain + uneven_stages + uneven_micro_batches + communication +
           uneven_data_ranks;
  }
};

// Distance of p10 and p90 of a normal distribution from its median, in standard deviations.
constexpr double kTenthPercentile = 1.2816;

struct StepPercentiles {
  double p10 = 0, p50 = 0, p90 = 0;  // seconds
};

// The predictions of a plan.
struct PlanForecast {
  StepPercentiles step_s;  // over the workload's steps, with the cost model's error
  double error_band = 0;   // standard deviation of a predicted time, as a share of it
  std::vector<StageForecast> stages;
  BubbleShares bubbles;
  // Share of the step that would be saved if communication took no time: between tensor ranks,
  // between stages, of gradients and updated weights.
  double communication_share = 0;
  RankTraffic traffic;  // of the first step
  double tokens_per_s = 0, packs_per_s = 0;
  // FLOPs of forward and backward without recomputation, over the peak of all ranks.
  double mfu = 0;
};

// FLOPs of a micro-batch: forward, and the gradients that training needs; recomputation does not
// count.
double ModelFlops(const CostModel& costs, const LayerLoad& load);

// The forecast of a plan that SearchPlans() has found. LibTorch-free, deterministic.
PlanForecast ForecastPlan(const PlanRequest& request, const Plan& plan);

}  // namespace equipoise
