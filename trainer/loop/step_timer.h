#pragma once

#include <cstdint>
#include <vector>

#include "balance/search/plan_search.h"
#include "trainer/loop/run_context.h"
#include "trainer/loop/run_data.h"
#include "trainer/settings/precision.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

class MpiEnvironment;

// Times the first steps of a run under one plan after another, with the run's data and first
// weights. Writes no file.
class StepTimer {
 public:
  // Reads the data. Collective. Throws UserError as the run would.
  StepTimer(const RunConfig& config, MpiEnvironment& mpi);

  // Sets the limits of micro-batches and the number of packs in a step, for Time().
  void UsePacks(const PackLimits& limits, int64_t global_batch);
  // Seconds of the `timed` steps after `warm_up` ones, each of the slowest rank. Collective. Throws
  // CollectiveRunError where a rank cannot get the memory that its plan is predicted to need; in a
  // world of one rank, for every failure. (With several ranks, a rank that fails during a step ends
  // the job, as in training.)
  std::vector<double> Time(const ScoredPlan& plan, int warm_up, int timed);
  Precision precision() const { return context_.setup.precision; }  // of the computation

 private:
  void RequireMemory(const ScoredPlan& plan) const;
  std::vector<double> RunSteps(const Plan& plan, int warm_up, int timed);

  RunContext context_;
  RunData data_;
};

}  // namespace equipoise
