#pragma once

#include "balance/costs/cost_model.h"
#include "balance/search/plan_request.h"
#include "parallel/plan.h"

namespace equipoise {

// Bytes that a rank sends in a step, as the mean over all ranks, by the links that they cross.
struct RankTraffic {
  double between_nodes_bytes = 0, within_node_bytes = 0;
  double total() const { return between_nodes_bytes + within_node_bytes; }
};

// The bytes of a plan's collectives and transfers in the workload's first step: gradients and
// weights of the data ranks by ZeRO stage, activations and their gradients between stages, sums of
// tensor ranks (in recomputation too), gradients of the copies of an encoder and of a tied weight.
// They are those that the plan's time is predicted from (balance/costs/stage_costs.h), but that of
// ring collectives each link is counted where it lies. REQUIRES: plan.stage_begins fits the model;
// costs.Fits(plan).
RankTraffic TrafficOf(const PlanRequest& request, const CostModel& costs, const Plan& plan);

}  // namespace equipoise
