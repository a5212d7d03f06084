#pragma once

#include <vector>

#include "balance/search/plan_request.h"
#include "parallel/plan.h"
#include "trainer/doctor/idle_time.h"

namespace equipoise {

// Where the time of a plan's first step goes, simulated: one rank of each pipeline place, for the
// mean data rank. The gather of weights and the sums over tensor ranks, which the simulator has
// inside of OPT and of passes, are told by links that take no time. LibTorch-free.
IdleTable SimulatedIdle(const PlanRequest& request, const Plan& plan);

}  // namespace equipoise
