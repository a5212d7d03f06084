#pragma once

#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"
#include "parallel/sharded_state.h"

namespace equipoise {

// Passes over schedules. Each takes a schedule and returns the transformed one; CompleteSchedule()
// runs them all.

// Sets `work` and removes the ops of stages that have nothing to do for a micro-batch, the
// backward ops of stages that no gradient is needed from (frozen, with frozen stages before), and
// the W of frozen stages; S and R of values without rows too.
Schedule DropIdleOps(Schedule schedule, const StepWork& work);

// Adds S and R for every value that crosses ranks and has rows. Transfers have one global order
// (the simulated time at which the value is produced, then rank), and each rank lists its own in
// that order: S right after the op whose result it sends, R before the first op that ends later
// than that. So no order deadlocks, even when every transfer blocks until its other end arrives,
// and receives are posted ahead of the ops that run meanwhile. Two transfers in opposite directions
// between two ranks in one slot are joined. `costs` gives the simulated times: any times give a
// valid order, true times a good one. REQUIRES: compute ops only. Throws ConfigError when the
// schedule deadlocks.
Schedule AddTransfers(Schedule schedule, const SimulationCosts& costs);

// Adds REDUCE for each stage with trainable weights after its last weight gradient (and what is
// sent right after that), also where no micro-batch gave it work, and OPT last on every rank. A
// rank lists its stages' reductions in descending order, whatever the micro-batches, so that the
// data ranks that share a stage agree on the order. A REDUCE must start without waiting for the
// other data ranks (OPT waits): having other work, they reach it at other places of their lists.
Schedule AddReductions(Schedule schedule);

// DropIdleOps(), AddTransfers(), AddReductions().
Schedule CompleteSchedule(Schedule schedule, const StepWork& work, const SimulationCosts& costs);

// Adds GATHER in front of each pass that reads weights which data ranks share out (kParameters),
// and FREE behind it, and behind passes that make gradients which they share out (kGradients).
Schedule AddGathers(Schedule schedule, ShardedState sharded);

// CompleteSchedule() where data ranks share out gradients or weights. Passes are then collective
// over ranks that have other work: all must list them in one order, transfers too, or they would
// wait for each other in a circle. So the order is that of a step in which everything runs and
// takes its default time, and what is idle on this data rank is dropped from it, but for GATHER and
// FREE. REQUIRES: compute ops only, the same on every data rank.
Schedule CompleteSharded(Schedule schedule, const StepWork& work, ShardedState sharded);

}  // namespace equipoise
