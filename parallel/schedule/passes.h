#pragma once

#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {

// Each pass takes a schedule and returns the completed one. CompleteSchedule() runs them all.

// Sets `work` and leaves out the compute ops of stages that have nothing to do for a micro-batch,
// the backward ops of stages where nothing wants a gradient (frozen, with frozen stages before),
// and the W of frozen stages.
Schedule DropIdleOps(Schedule schedule, const StepWork& work);

// Adds S and R for every value that crosses ranks and has rows. All transfers have one place in a
// global order of all ranks' ops (the simulated time at which the value is made, then rank), and
// each rank lists its own in that order: S right after the op whose result it sends, R in front of
// the first op that ends later than that. So no order deadlocks even when every transfer blocks
// until its other end has come, and receives are posted ahead of the ops that run meanwhile.
// Transfers that cross between two ranks in one slot are joined. `costs` gives the simulated times;
// any times make a right order, true ones a good one. REQUIRES: compute ops alone.
// Throws ConfigError when the schedule deadlocks.
Schedule AddTransfers(Schedule schedule, const SimulationCosts& costs);

// Adds REDUCE for each stage with trainable weights after its last weight gradient (and what is
// sent right after that), also where no micro-batch brought it work; OPT last on every rank. A rank
// lists its stages' reductions in descending order, whatever the micro-batches were, so that the
// data ranks that share a stage agree on the order. Reductions have to start without waiting for
// the other data ranks, as OPT does that: with work of their own these come to them at other
// places.
Schedule AddReductions(Schedule schedule);

Schedule CompleteSchedule(Schedule schedule, const StepWork& work, const SimulationCosts& costs);

}  // namespace equipoise
