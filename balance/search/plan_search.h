#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "balance/costs/memory_model.h"
#include "balance/search/plan_request.h"

namespace equipoise {

struct ScoredPlan {
  Plan plan;
  double step_s = 0;                   // of the data rank with the most work, on the first step
  std::vector<MemoryForecast> memory;  // by pipeline rank, every micro-batch being the worst one
  int64_t peak_bytes() const;          // the largest total
};

// A plan that was not taken, and why. Its stages are empty where none were made.
struct RejectedPlan {
  Plan plan;
  std::string reason;  // "needs 93.1 GiB of 79.1 GiB on pipeline rank 0", "4.1 s a step or more"
  int64_t missing_bytes = 0;  // beyond a device's memory; 0: memory was not the reason
};

struct PlanSearchResult {
  std::vector<ScoredPlan> plans;  // different meshes or schedules, fastest first; may be empty
  std::vector<RejectedPlan> rejected;
  int considered = 0, simulated = 0;
};

// Searches mesh, chunks, schedule, ZeRO, stages and recomputation for the shortest step that fits
// the memory; the same result for the same request, on any machine. What by a lower bound takes
// longer than the best plans is not simulated. Throws ConfigError where the pins leave nothing to
// choose from, with what to change.
PlanSearchResult SearchPlans(const PlanRequest& request);

// A given plan as it is, whether or not it fits the memory; its recomputation is not chosen anew.
// REQUIRES: plan.stage_begins and plan.recompute are set, the micro-batches can be divided by
// plan.data().
ScoredPlan ScorePlan(const PlanRequest& request, Plan plan);

// Whether SearchPlans() finds a plan: asks for the memory alone, so takes a part of the time.
bool SomePlanFits(const PlanRequest& request);

// The plan to train with: the best one. Throws UserError with kNoPlan where none fits: the nearest
// miss, its worst micro-batch, and what would make it fit.
ScoredPlan BestPlan(const PlanRequest& request, const PlanSearchResult& result);

}  // namespace equipoise
