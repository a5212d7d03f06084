#pragma once

#include "trainer/loop/checkpointer.h"
#include "trainer/loop/evaluator.h"
#include "trainer/loop/run_context.h"
#include "trainer/loop/run_data.h"
#include "trainer/loop/train_options.h"
#include "trainer/planner/plan_report.h"

namespace equipoise {

// All that a run reads and checks before it is planned, in the order in which it is read.
struct RunInputs {
  // Collective. Throws UserError for whatever the run would end with before its first step.
  RunInputs(RunContext& context, const TrainOptions& options);

  RunData data;
  Evaluator evaluator;
  Checkpointer checkpoints;
};

// The plan of the training run that these options ask for, on the ranks that were started, after
// all that such a run checks before it builds its model: throws what the Trainer would. The cost
// index is built where it is absent; nothing else is written, and no weights are read. Collective;
// the same report on every rank.
PlanReport PlanWithoutTraining(const TrainOptions& options, MpiEnvironment& mpi);

}  // namespace equipoise
