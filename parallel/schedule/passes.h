#pragma once

#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {

// Each pass takes a schedule and returns the completed one. CompleteSchedule() runs them all.

// Sets `work` and leaves out the compute ops of stages that have nothing to do for a micro-batch,
// and the backward ops of stages where nothing wants a gradient (frozen, with frozen stages
// before).
Schedule DropIdleOps(Schedule schedule, const StepWork& work);

// Adds S and R for every value that crosses ranks and has rows. All transfers have one place in a
// global order (the simulated time at which the value is made, then rank), and each rank lists its
// own in that order, so that no order deadlocks even when every transfer blocks until its other end
// has come. Transfers that cross between two ranks in one slot are joined. Receives stand as early
// as that order allows, so that they are posted ahead; `costs` gives the simulated times.
Schedule AddTransfers(Schedule schedule, const SimulationCosts& costs);

// Adds REDUCE for each stage with trainable weights after its last weight gradient, and OPT last.
// A rank lists its stages' reductions in descending order, whatever the micro-batches were, so that
// the data ranks that share a stage agree on the order.
Schedule AddReductions(Schedule schedule);

Schedule CompleteSchedule(Schedule schedule, const StepWork& work, const SimulationCosts& costs);

}  // namespace equipoise
