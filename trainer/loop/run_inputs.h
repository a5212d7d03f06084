#pragma once

#include "trainer/loop/best_measure.h"
#include "trainer/loop/checkpointer.h"
#include "trainer/loop/evaluator.h"
#include "trainer/loop/run_context.h"
#include "trainer/loop/run_data.h"
#include "trainer/loop/train_options.h"
#include "trainer/planner/plan_report.h"

namespace equipoise {

// Inputs that a run reads and checks before it is planned, in the order in which they are read.
struct RunInputs {
  // Collective. Throws UserError for every fault of the inputs.
  RunInputs(RunContext& context, const TrainOptions& options);

  BestMeasure best;
  RunData data;
  Evaluator evaluator;
  Checkpointer checkpoints;
};

// The plan of the training run with these options on the started ranks, after all checks that such
// a run makes before it builds its model; throws what Trainer throws. Builds the cost index where
// it is absent, writes nothing else, and reads no weights. Collective; the same report on every
// rank.
PlanReport PlanWithoutTraining(const TrainOptions& options, MpiEnvironment& mpi);

}  // namespace equipoise
