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

// Times the first steps of a run under one plan after another, on the run's data and from first
// weights. Writes nothing.
class StepTimer {
 public:
  // Collective. Throws UserError as the run would.
  StepTimer(const RunConfig& config, MpiEnvironment& mpi);

  // Sets limits of the micro-batches of Time(), and the number of packs of a step.
  void UsePacks(const PackLimits& limits, int64_t global_batch);
  // Seconds of the steps after the warm-up, of the slowest rank each. Collective. Throws
  // CollectiveRunError where a rank cannot get the memory that its plan is predicted to need; in a
  // world of one for every failure. (A rank that fails amid a step of several ranks ends the job,
  // as in training.)
  std::vector<double> Time(const ScoredPlan& plan, int warm_up, int timed);
  Precision precision() const { return context_.setup.precision; }  // of the computation

 private:
  void RequireMemory(const ScoredPlan& plan) const;
  std::vector<double> RunSteps(const Plan& plan, int warm_up, int timed);

  RunContext context_;
  RunData data_;
};

}  // namespace equipoise
