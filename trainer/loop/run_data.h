#pragma once

#include <cstdint>

#include "data/loading/packing.h"
#include "models/spec/model_config.h"
#include "trainer/loop/run_context.h"
#include "trainer/planner/plan_yaml.h"
#include "trainer/planner/sample_costs.h"
#include "trainer/run/open_data.h"
#include "trainer/settings/group_settings.h"
#include "trainer/settings/run_config.h"
#include "trainer/settings/step_interval.h"

namespace equipoise {

// Upper limits on a micro-batch, in the units of `balance`; 0: those of the configuration, else
// chosen by the packer.
struct PackLimits {
  int64_t tiles = 0, tokens = 0;
};

// The records that a run trains on, and how they are packed into micro-batches.
class RunData {
 public:
  // Opens data.train and checks that the model fits the settings. Collective. Throws ConfigError
  // (also where ranks see different records) and DataError. `context` must outlive the object.
  explicit RunData(RunContext& context);

  const OpenedData& opened() const { return opened_; }
  const Dataset& dataset() const { return opened_.dataset; }
  const CostIndex& index() const { return opened_.index; }
  const ModelConfig& model_config() const { return opened_.model_config; }
  int64_t left_out() const { return left_out_; }  // records that the cost index excludes
  int64_t bad() const { return bad_; }            // those that cannot be used

  const SampleCosts& costs() const { return costs_; }  // of an epoch

  // Steps of a pass over the data; 0 where no setting is given in epochs.
  double epoch_steps() const { return epoch_steps_; }
  // How often checkpoints are saved, losses of held-out data and answers measured.
  StepInterval SavesEvery() const;
  StepInterval MeasuresEvery() const;
  StepInterval AnswersEvery() const;

  // Fixes the limits for which a plan was made; they replace the configuration's where the planner
  // has chosen others. The steps of train.epochs are counted again, from those of a run that goes
  // on.
  void FixLimits(const PlanPrediction& prediction, const StepsTaken& taken = {});
  const PackLimits& limits() const { return limits_; }  // of the plan

  // The packer of training's samples. Throws DataError where they do not fill one step.
  EpochPacker MakePacker(int data_ranks) const;
  // Logs how full and how even an epoch's micro-batches are, compared with random ones. For rank 0.
  void LogBalance(int data_ranks, int64_t epoch) const;

 private:
  // Counts the steps of an epoch, and makes train.steps those of train.epochs.
  void SetSteps();

  RunContext& context_;
  BalanceSection requested_;  // `balance` as given, before FixLimits()
  PackLimits limits_;
  OpenedData opened_;
  SampleCosts costs_;
  int64_t left_out_, bad_;
  double epoch_steps_ = 0;
  StepsTaken taken_;
};

}  // namespace equipoise
