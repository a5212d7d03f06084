#pragma once

#include "trainer/planner/plan_report.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

class MpiEnvironment;

// Each run of a plan takes up to eight of the 256 numbers that groups of ranks have in a process.
constexpr int kMostTrials = 31;

// The plan of a configuration for the started ranks, chosen by running the search's `trials` best
// plans (at most kMostTrials) for a few steps each on the run's data: the best plan is the one with
// the shortest measured median, and the report's `trials` hold the measurements. Writes no run
// folder. All meshes are searched, also on this machine's CPUs, since times are measured anyway.
// `ranks` of the plan; 0: as many as the cluster has devices, for `local` as many as were started.
// Collective; the same report on every rank. Throws ConfigError when another number was started,
// and what PlanRun() throws.
PlanReport PlanByTrial(const RunConfig& config, int ranks, int trials, MpiEnvironment& mpi);

}  // namespace equipoise
