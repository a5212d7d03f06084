#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "balance/costs/memory_model.h"
#include "balance/search/plan_rejection.h"
#include "balance/search/plan_request.h"

namespace equipoise {

// A plan with its predicted time and memory.
struct ScoredPlan {
  Plan plan;
  double step_s = 0;                   // of the data rank with the most work, on the first step
  std::vector<MemoryForecast> memory;  // by pipeline rank, if every micro-batch is the worst
  int64_t peak_bytes() const;          // the largest total
};

struct PlanSearchResult {
  std::vector<ScoredPlan> plans;  // of different meshes or schedules, fastest first; may be empty
  std::vector<RejectedPlan> rejected;
  int considered = 0, simulated = 0;
};

// Searches mesh, place of the encoder, chunks, schedule, sequence parallelism, ZeRO and the ranks
// that share out its state, stages and recomputation for the shortest step that fits the memory.
// Deterministic: equal requests have equal results on any machine. Plans whose lower bound is
// longer than the best plans are not simulated. Throws ConfigError, with what to change, where the
// pins leave no plan.
PlanSearchResult SearchPlans(const PlanRequest& request);

// Time and memory of a given plan, whether or not it fits the memory; its recomputation is kept.
// REQUIRES: plan.stage_begins and plan.recompute are set; plan.data() divides the number of packs.
ScoredPlan ScorePlan(const PlanRequest& request, Plan plan);

// Whether SearchPlans() finds a plan. Checks only memory, so takes less time.
bool SomePlanFits(const PlanRequest& request);

// Seconds that the first step takes at least by any plan that SearchPlans() may find; infinite
// where no plan's state fits the memory. Takes less time than a search. Throws as it does.
double LeastStepSeconds(const PlanRequest& request);

// The best plan, to train with. Throws UserError with kNoPlan where none fits: the nearest miss,
// its worst micro-batch, and what would make it fit.
ScoredPlan BestPlan(const PlanRequest& request, const PlanSearchResult& result);

}  // namespace equipoise
