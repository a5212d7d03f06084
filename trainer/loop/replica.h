#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/loading/packing.h"
#include "models/spec/model_config.h"
#include "parallel/diloco/outer_optimizer.h"
#include "parallel/plan.h"
#include "parallel/zero/zero_optimizer.h"
#include "trainer/loop/non_finite_guard.h"
#include "trainer/loop/run_context.h"
#include "trainer/loop/run_data.h"
#include "trainer/loop/step_forecast.h"
#include "trainer/run/parallel_model.h"
#include "trainer/settings/loss_scaler.h"

namespace equipoise {

// This rank's part of the model in training under a plan, its optimizer, the count of skipped steps
// and the scale of the loss. Of several models (train.diloco), that of this rank's island.
class Replica {
 public:
  // Builds the model; its weights are not set. Collective. Throws ConfigError on every rank where
  // ranks were given different plans or limits, tensor-parallel ranks are on two machines, or
  // cluster.profile does not fit this device; warns where it is used nevertheless
  // (cluster.force_profile). `context` must outlive the replica.
  Replica(RunContext& context, const ModelConfig& config, const Plan& plan,
          const PackLimits& limits);

  const Plan& plan() const { return plan_; }
  const ModelConfig& config() const { return config_; }
  ParallelModel& model() { return *model_; }
  const ParallelModel& model() const { return *model_; }
  ZeroOptimizer& optimizer() { return *optimizer_; }
  const ZeroOptimizer& optimizer() const { return *optimizer_; }
  // Null without train.diloco.
  OuterOptimizer* outer() { return outer_.get(); }
  // Ends a round of train.diloco: the models of all islands become one. Returns the seconds.
  // Collective over all islands.
  double TakeOuterStep();
  // Data ranks of all islands, and which of them this rank is.
  int data_ranks() const { return context_.islands.count() * plan_.data(); }
  int data_rank() const {
    return context_.islands.number() * plan_.data() + model_->groups().at.data;
  }
  // The mesh of the ranks of all islands.
  Mesh whole_mesh() const;
  int pipeline_rank() const { return model_->groups().at.pipeline; }
  int64_t accumulation() const { return accumulation_; }  // micro-batches of a data rank in a step
  int64_t parameter_count() const;                        // of the whole model

  // Loads on the layers of this data rank's micro-batches in a step.
  std::vector<LayerLoad> LoadsOf(const std::vector<Pack>& packs) const;
  // Frees model and optimizer and builds them again, after reading a damaged checkpoint that may
  // have overwritten some weights. Collective.
  void Rebuild();

  // Predictions of the cost model for this replica's steps.
  const StepForecast& forecast() const { return forecast_; }

  NonFiniteGuard guard;
  LossScaler scaler;

 private:
  void Build();

  RunContext& context_;
  ModelConfig config_;
  Plan plan_;
  LayerLoad full_;  // by which an encoder with a fixed place is laid into bubbles
  StepForecast forecast_;
  int64_t accumulation_;
  std::unique_ptr<ParallelModel> model_;
  std::unique_ptr<ZeroOptimizer> optimizer_;
  std::unique_ptr<OuterOptimizer> outer_;
};

}  // namespace equipoise
