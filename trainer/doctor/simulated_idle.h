#pragma once

#include <vector>

#include "balance/search/plan_request.h"
#include "parallel/plan.h"
#include "trainer/doctor/idle_time.h"

namespace equipoise {

// Where the time of a plan's first step goes, simulated: one rank of each pipeline place, for the
// mean data rank. What the simulator has inside of OPT and of passes is told by the seconds that
// they take without it: gathers of weights and sums of gradients (ZeRO 2 and 3), sums of tensor
// ranks, exchanges of context ranks. LibTorch-free.
IdleTable SimulatedIdle(const PlanRequest& request, const Plan& plan);

}  // namespace equipoise
