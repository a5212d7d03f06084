#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"
#include "parallel/plan.h"
#include "parallel/schedule/schedule.h"

namespace equipoise {

// The stages of a model under a plan, as schedules see them. LibTorch-free; every rank derives the
// same from the same plan.
class StageLayout {
 public:
  // `frozen`: modules without gradients, as model.freeze names them.
  // REQUIRES: plan.stage_begins has num_stages() + 1 ascending entries from 0 to the number of
  // layers, and each component's stages begin with its first layer.
  StageLayout(const ModelConfig& config, const Plan& plan, const std::vector<std::string>& frozen);

  // The chain of stages, with what each needs a gradient for.
  const StageGraph& graph() const { return graph_; }
  const Plan& plan() const { return plan_; }
  const std::vector<LayerSpec>& specs() const { return specs_; }

  // The stages that have work for each micro-batch, and rows to send on.
  StepWork Work(const std::vector<LayerLoad>& micro_batches) const;
  // Shape [rows, width] of what `stage` sends to the next one; REQUIRES: not the last stage.
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
