#pragma once

#include <vector>

#include "parallel/plan.h"
#include "trainer/loop/run_context.h"
#include "trainer/loop/step_drift.h"
#include "trainer/loop/step_forecast.h"
#include "trainer/loop/straggler.h"

namespace equipoise {

// Compares the ranks' steps with each other, and with predicted ones, while a run goes on; rank 0
// warns of a slow rank and of a drift.
class StepWatch {
 public:
  StepWatch(const RunContext& context, const Plan& plan, const StepForecast& forecast);

  // Adds this rank's times of a step. Collective every few steps.
  void Add(const RankTimes& step);

 private:
  const RunContext& context_;
  bool knows_speed_;
  DriftMonitor drift_;
  StragglerWatch stragglers_;
};

}  // namespace equipoise
