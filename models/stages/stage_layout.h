#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"
#include "parallel/plan.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {

// What a plan makes of a model: its stages as schedules see them. LibTorch-free; every rank derives
// the same from the same plan.
class StageLayout {
 public:
  // `frozen`: modules without gradients, as model.freeze names them.
  // REQUIRES: plan.stage_begins has num_stages() + 1 ascending entries from 0 to the layers'
  // number; where the encoder has ranks of its own, their stages end with its last layer.
  StageLayout(const ModelConfig& config, const Plan& plan, const std::vector<std::string>& frozen);

  // The chain of stages, with what each needs a gradient for.
  const StageGraph& graph() const { return graph_; }
  const Plan& plan() const { return plan_; }
  const std::vector<LayerSpec>& specs() const { return specs_; }

  // Which stages have something to do for each micro-batch, and rows to hand on.
  StepWork Work(const std::vector<LayerLoad>& micro_batches) const;
  // Analytic costs: a second is 10^12 FLOPs; boundaries and kept activations in bytes.
  SimulationCosts Costs(const std::vector<LayerLoad>& micro_batches, int64_t element_bytes) const;
  // The tensor that `stage` hands to the next one; REQUIRES: not the last stage.
  std::vector<int64_t> BoundaryShape(int stage, const LayerLoad& load) const;
  // "language_model.model.layers.3 to language_model.model.layers.5"
  std::string Describe(int stage) const;

  // Whether a stage has something to do for a micro-batch, and rows for the next one.
  bool Runs(int stage, const LayerLoad& load) const;
  bool Sends(int stage, const LayerLoad& load) const;

 private:
  const LayerSpec& LastLayer(int stage) const;

  Plan plan_;
  std::vector<LayerSpec> specs_;
  StageGraph graph_;
};

}  // namespace equipoise
