#pragma once

#include <vector>

#include "parallel/mesh.h"
#include "trainer/loop/run_context.h"
#include "trainer/loop/step_drift.h"
#include "trainer/loop/step_forecast.h"
#include "trainer/loop/straggler.h"

namespace equipoise {

// Watches a run's steps for slow ranks and for drifts from the prediction; rank 0 warns about them.
class StepWatch {
 public:
  // `mesh`: of all ranks.
  StepWatch(const RunContext& context, const Mesh& mesh, const StepForecast& forecast);

  // Adds this rank's times of a step. Collective every kStepsOfWindow steps.
  void Add(const RankTimes& step);

 private:
  const RunContext& context_;
  bool knows_speed_;
  DriftMonitor drift_;
  StragglerWatch stragglers_;
};

}  // namespace equipoise
