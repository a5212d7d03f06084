#pragma once

#include <string>

#include "configs/base/json.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/loop/replica.h"
#include "trainer/loop/run_context.h"
#include "trainer/loop/run_data.h"
#include "trainer/loop/train_options.h"

namespace equipoise {

// Checkpoints of a run: writes them, and resumes from them.
class Checkpointer {
 public:
  // Looks for the checkpoint to go on from, and enters its limits of micro-batches where the
  // configuration leaves them open: a run that goes on with another mesh or memory has the same
  // packs. Collective. Throws ConfigError and DataError. Both must outlive it.
  Checkpointer(RunContext& context, const RunData& data, const TrainOptions& options);

  // To go on from; empty in a run that begins.
  const std::string& start() const { return start_; }
  // By this run, or the one it began from.
  const std::string& newest() const { return newest_.empty() ? start_ : newest_; }
  // Throws ConfigError where the checkpoint is of another model or other data. REQUIRES: a start.
  void CheckStart() const;

  // Weights, moments and state of the checkpoint to go on from, or those of a first step. Where it
  // turns out to be damaged, and was not asked for by name, the one before is taken. Collective.
  // Throws ConfigError and DataError.
  TrainState Restore(Replica& replica);
  // Collective. Throws RunError.
  void Save(const TrainState& state, const Replica& replica);
  // After too many steps in a row that were skipped: marks the checkpoints that hold these weights
  // as unsound, if they may be the cause, and throws CollectiveRunError. `state` is that before the
  // last of these steps. Collective.
  [[noreturn]] void EndForSkippedSteps(const TrainState& state, const NonFiniteGuard& guard) const;

 private:
  void RestoreLimits();
  TrainState Load(Replica& replica);
  void RequirePosition(const TrainState& state, const Plan& plan) const;
  void LogStart(const CheckpointIndex& index, const Plan& plan) const;
  Json Environment(const Plan& plan) const;
  Json Sections() const;
  Json Settings() const;

  RunContext& context_;
  const RunData& data_;
  bool chooses_;  // the start by itself: it was not asked for by name
  std::string start_;
  std::string newest_;  // saved by this run; empty: none yet
};

}  // namespace equipoise
