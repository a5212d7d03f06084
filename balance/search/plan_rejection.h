#pragma once

#include <cstdint>
#include <string>

#include "balance/search/plan_fit.h"
#include "balance/search/plan_request.h"

namespace equipoise {

// A plan that was not chosen, and why. Its stages are empty where it was rejected before the cut.
struct RejectedPlan {
  Plan plan;
  std::string reason;  // "pipeline rank 0 needs 93.1 GiB of 79.1 GiB", "4.1 s a step or more"
  int64_t missing_bytes = 0;  // beyond a device's memory; 0: rejected for another reason
  // That offloaded state needs of a node's host memory, which has less; 0: another reason.
  int64_t host_bytes = 0;
};

std::string GiB(int64_t bytes);

// The rejection of a plan of which a rank does not fit, with any recomputation.
RejectedPlan TooLarge(const PlanRequest& request, Plan plan, const OutOfMemoryRank& misfit);

// The rejection of a plan whose offloaded state a node has no memory for.
RejectedPlan TooLargeForHost(const PlanRequest& request, Plan plan, int64_t bytes);

}  // namespace equipoise
