#pragma once

#include "trainer/planner/plan_report.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

class MpiEnvironment;

// The plan of a configuration for the ranks that were started, chosen by running the `trials` best
// ones of the search for a few steps each on the run's data: its best plan is the one with the
// shortest measured median, and `trials` says what was measured. Writes no run folder. On this
// machine's CPUs too all meshes are searched, as times are measured anyway. Collective; the same
// report on every rank. `ranks`: what the plan is for, 0: the cluster's devices, of `local` the
// ranks started. Throws ConfigError when that is not what was started, and what PlanRun() throws.
PlanReport PlanByTrial(const RunConfig& config, int ranks, int trials, MpiEnvironment& mpi);

}  // namespace equipoise
