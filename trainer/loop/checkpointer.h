#pragma once

#include <string>

#include "configs/base/json.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/loop/replica.h"
#include "trainer/loop/run_context.h"
#include "trainer/loop/run_data.h"
#include "trainer/loop/train_options.h"

namespace equipoise {

// Writes the checkpoints of a run, and resumes from them.
class Checkpointer {
 public:
  // Finds the checkpoint to resume from, and takes its limits of micro-batches where the
  // configuration gives none: a run that resumes with another mesh or memory has the same packs.
  // Collective. Throws ConfigError and DataError. `context` and `data` must outlive the object.
  Checkpointer(RunContext& context, const RunData& data, const TrainOptions& options);

  // The checkpoint to resume from; empty in a new run.
  const std::string& start() const { return start_; }
  // Whether it is chosen here, not given by name: the same command goes on from what it saves.
  bool chooses() const { return chooses_; }
  // The steps that it is behind.
  const StepsTaken& taken() const { return taken_; }
  // The newest checkpoint of this run, else start().
  const std::string& newest() const { return newest_.empty() ? start_ : newest_; }
  // Throws ConfigError where start() is of another model or other data. REQUIRES: start().
  void CheckStart() const;

  // Loads weights, moments and state of start(), or sets those of a first step. Where start() turns
  // out to be damaged, and was not given by name, the checkpoint before it is taken. Collective.
  // Throws ConfigError and DataError.
  TrainState Restore(Replica& replica);
  // Writes a checkpoint. Collective. Throws RunError.
  void Save(const TrainState& state, Replica& replica);
  // Ends a run in which too many steps in a row were skipped: marks the checkpoints that hold these
  // weights as unsound, if they may be the cause, and throws CollectiveRunError. `state` is that
  // before the last of these steps. Collective.
  [[noreturn]] void EndForSkippedSteps(const TrainState& state, const NonFiniteGuard& guard) const;

 private:
  void RestoreLimits();
  TrainState Load(Replica& replica);
  void ForgetLostBest(TrainState& state) const;
  void GoOnWithin(int64_t step, const at::Tensor& model, OuterOptimizer& outer) const;
  void RequirePosition(const TrainState& state, const Plan& plan) const;
  void LogStart(const CheckpointIndex& index, const Plan& plan) const;
  void WarnOfOtherOrder(const CheckpointIndex& index, const Plan& plan) const;
  Json Environment(const Plan& plan) const;
  Json Sections() const;
  Json Settings() const;

  RunContext& context_;
  const RunData& data_;
  bool chooses_;
  std::string start_;
  StepsTaken taken_;
  Json adapter_;        // model.adapter as given, before TakeAdaptersOfStart()
  std::string base_;    // identity of the weights under adapters; empty: no adapters
  std::string newest_;  // saved by this run; empty: none
};

}  // namespace equipoise
