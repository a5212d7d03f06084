#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"
#include "parallel/plan.h"
#include "parallel/schedule/encoder_pipelines.h"
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
  // With LayerSpecs() of the model, for a search that looks at many plans of it.
  StageLayout(std::shared_ptr<const std::vector<LayerSpec>> specs, const Plan& plan,
              const std::vector<std::string>& frozen);

  // The stages with what each needs a gradient for: a chain, or copies of the encoder that feed the
  // chain of the language model.
  const StageGraph& graph() const { return graph_; }
  // The chain of the language model alone, and the copies of the encoder in front of it, as
  // FillBubbles() takes them. REQUIRES: FillsBubbles(plan().encoder).
  const StageGraph& text_graph() const { return text_; }
  EncoderPipelines Encoder(const std::vector<LayerLoad>& micro_batches) const;
  const Plan& plan() const { return plan_; }
  const std::vector<LayerSpec>& specs() const { return *specs_; }

  // The stages that have work for each micro-batch, and rows to send on; of an encoder with several
  // copies, each of them.
  StepWork Work(const std::vector<LayerLoad>& micro_batches) const;
  // Work() of the stages of text_graph().
  StepWork TextWork(const std::vector<LayerLoad>& micro_batches) const;
  // Shape [rows, width] of what each rank of `stage` sends to the next one. REQUIRES: not the last
  // stage.
  std::vector<int64_t> BoundaryShape(int stage, const LayerLoad& load) const;
  // "language_model.model.layers.3 to language_model.model.layers.5"
  std::string Describe(int stage) const;

  // Whether a stage has something to do for a micro-batch, and rows for the next one.
  bool Runs(int stage, const LayerLoad& load) const;
  bool Sends(int stage, const LayerLoad& load) const;

 private:
  const LayerSpec& FirstLayer(int stage) const;
  const LayerSpec& LastLayer(int stage) const;
  int first_text_stage() const { return graph_.num_stages() - text_.num_stages(); }

  Plan plan_;
  std::shared_ptr<const std::vector<LayerSpec>> specs_;
  StageGraph graph_;
  StageGraph text_;           // without copies of an encoder
  EncoderPipelines encoder_;  // those copies, but for the micro-batches
};

}  // namespace equipoise
