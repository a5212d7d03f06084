#include "trainer/loop/run_inputs.h"

#include "trainer/loop/first_weights.h"
#include "trainer/loop/resumed_adapters.h"
#include "trainer/outputs/run_folder.h"
#include "trainer/planner/plan_run.h"
#include "trainer/run/same_model.h"

namespace equipoise {

RunInputs::RunInputs(RunContext& context, const TrainOptions& options)
    : best(context.config),
      data((TakeAdaptersOfStart(context, options), context)),
      evaluator(context),
      checkpoints(context, data, options) {
  best.CheckChoice([this](size_t source) { return evaluator.HasChoice(source); });
  const bool reads_weights = checkpoints.start().empty() || data.model_config().lora.on();
  if (reads_weights) CheckFirstWeights(context, data.model_config());
  RequireSameModel(context.world(), context.config, reads_weights);
}

PlanReport PlanWithoutTraining(const TrainOptions& options, MpiEnvironment& mpi) {
  RunContext context(options.config, mpi);
  if (options.resume == Resume::kNone) RefuseCheckpoints(context.config.run.dir);
  if (options.resume == Resume::kFrom)
    RefuseOthersCheckpoint(context.config.run.dir, options.resume_from);
  CheckRunFolder(context.config.run.dir, context.world());
  const RunInputs inputs(context, options);
  inputs.data.MakePacker(/*data_ranks=*/1);  // throws where there is too little
  if (!inputs.checkpoints.start().empty()) inputs.checkpoints.CheckStart();
  return PlanRun(
      context.config,
      {.ranks = context.world().size(), .precision = context.setup.precision, .started = true});
}

}  // namespace equipoise
