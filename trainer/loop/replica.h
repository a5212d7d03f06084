#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/loading/packing.h"
#include "models/spec/model_config.h"
#include "parallel/plan.h"
#include "parallel/zero/zero_optimizer.h"
#include "trainer/loop/non_finite_guard.h"
#include "trainer/loop/run_context.h"
#include "trainer/loop/run_data.h"
#include "trainer/loop/step_forecast.h"
#include "trainer/run/parallel_model.h"

namespace equipoise {

// The model in training, spread over the ranks as a plan says: this rank's part of it, its
// optimizer, and the count of steps that were skipped.
class Replica {
 public:
  // Weights are not set yet. Collective. Throws ConfigError on every rank where ranks were given
  // different plans or limits, tensor-parallel ranks are on two machines, or cluster.profile does
  // not fit this device; warns where it is used all the same (cluster.force_profile). `context`
  // must outlive it.
  Replica(RunContext& context, const ModelConfig& config, const Plan& plan,
          const PackLimits& limits);

  const Plan& plan() const { return plan_; }
  const ModelConfig& config() const { return config_; }
  ParallelModel& model() { return *model_; }
  const ParallelModel& model() const { return *model_; }
  ZeroOptimizer& optimizer() { return *optimizer_; }
  const ZeroOptimizer& optimizer() const { return *optimizer_; }
  int data_rank() const { return model_->groups().at.data; }
  int pipeline_rank() const { return model_->groups().at.pipeline; }
  int64_t accumulation() const { return accumulation_; }  // micro-batches of a data rank in a step
  int64_t parameter_count() const;                        // of the whole model

  // Loads of this data rank's micro-batches of a step on the layers.
  std::vector<LayerLoad> LoadsOf(const std::vector<Pack>& packs) const;
  // Frees model and optimizer and builds them again, as a checkpoint that turned out to be damaged
  // may have overwritten some weights. Collective.
  void Rebuild();

  // Predictions of the cost model for its steps.
  const StepForecast& forecast() const { return forecast_; }

  NonFiniteGuard guard;

 private:
  void Build();

  RunContext& context_;
  ModelConfig config_;
  Plan plan_;
  StepForecast forecast_;
  int64_t accumulation_;
  std::unique_ptr<ParallelModel> model_;
  std::unique_ptr<ZeroOptimizer> optimizer_;
};

}  // namespace equipoise
