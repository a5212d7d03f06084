#pragma once

#include <cstdint>

#include "data/loading/packing.h"
#include "models/spec/model_config.h"
#include "trainer/loop/run_context.h"
#include "trainer/planner/plan_yaml.h"
#include "trainer/planner/sample_costs.h"
#include "trainer/run/open_data.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// Most that a micro-batch may hold, as `balance` counts it; 0: as the configuration says, or chosen
// by the packer.
struct PackLimits {
  int64_t tiles = 0, tokens = 0;
};

// The records that a run trains on, and how they are packed into micro-batches.
class RunData {
 public:
  // Opens data.train and checks that the model fits the settings. Collective. Throws ConfigError
  // (also where ranks see other records) and DataError.
  // `context` must outlive it.
  explicit RunData(RunContext& context);

  const OpenedData& opened() const { return opened_; }
  const Dataset& dataset() const { return opened_.dataset; }
  const CostIndex& index() const { return opened_.index; }
  const ModelConfig& model_config() const { return opened_.model_config; }
  int64_t left_out() const { return left_out_; }  // records that the cost index excludes

  const SampleCosts& costs() const { return costs_; }  // of an epoch

  // Enters the limits that a plan was made for; where the planner chose them in place of the
  // configuration's, into that as well.
  void FixLimits(const PlanPrediction& prediction);
  const PackLimits& limits() const { return limits_; }  // that the plan was made for

  // Throws DataError where there is too little data for a step.
  EpochPacker MakePacker(int data_ranks) const;
  // Logs how full and how even an epoch's micro-batches are, beside random ones. For rank 0.
  void LogBalance(int data_ranks, int64_t epoch) const;

 private:
  RunContext& context_;
  BalanceSection asked_;  // as it was given
  PackLimits limits_;
  OpenedData opened_;
  SampleCosts costs_;
  int64_t left_out_;
};

}  // namespace equipoise
