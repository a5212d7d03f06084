#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "configs/base/error.h"
#include "trainer/answers/answer_eval.h"
#include "trainer/checkpoint/checkpoint_index.h"
#include "trainer/loop/kernel_trace.h"
#include "trainer/loop/replica.h"
#include "trainer/loop/run_context.h"
#include "trainer/loop/run_inputs.h"
#include "trainer/loop/run_outputs.h"
#include "trainer/loop/run_trace.h"
#include "trainer/loop/step_runner.h"
#include "trainer/loop/step_watch.h"
#include "trainer/loop/train_options.h"
#include "trainer/outputs/run_folder.h"
#include "trainer/planner/plan_run.h"

namespace equipoise {

class MpiEnvironment;

// A training run: its parts, in the order of their construction, and the loop over steps.
class Trainer {
 public:
  // Reads data, model and checkpoint. Collective. Throws UserError.
  Trainer(const TrainOptions& options, MpiEnvironment& mpi);

  // Trains to the last step, or until a stop is requested (then saves and returns kStopped).
  ExitCode Run();

 private:
  // Measures what is due after a step. Returns the answers to eval.answers where they were given;
  // not where a stop was requested meanwhile.
  std::optional<std::vector<AnsweredSource>> Measure(StepResult& step, bool last);
  // Answers the questions of eval.answers with the weights after `step`. Where a stop was requested
  // meanwhile, nothing is returned, `step` is the last of this start, and the state owes answers.
  std::optional<std::vector<AnsweredSource>> AnswerAfter(StepResult& step);
  // The same for the step that the run goes on from, reported with it, and saved.
  std::optional<std::vector<AnsweredSource>> GiveOwedAnswers();
  void Advance(const StepResult& step);
  void Save();
  bool Due(const StepInterval& interval) const { return interval.IsDue(state_.step); }
  void Finish(const std::vector<AnsweredSource>& answers);
  // Ends this start before the last step.
  ExitCode Stop();
  // Where no step was taken from a start that was given by name: then this run has no checkpoint to
  // go on from.
  void SaveStart();
  // How the same command goes on, for messages.
  const char* Again() const;

  RunContext context_;
  std::unique_ptr<RunFolder> folder_;
  RunInputs inputs_;
  TrainingPlan planned_;
  Replica replica_;
  TrainState state_;
  int64_t first_step_;  // number of steps done before this start
  RunOutputs outputs_;
  RunTrace trace_;
  KernelTrace kernels_;
  StepRunner steps_;
  StepWatch watch_;
};

}  // namespace equipoise
