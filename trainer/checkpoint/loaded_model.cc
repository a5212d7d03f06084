#include "trainer/checkpoint/loaded_model.h"

#include <utility>

#include "models/families/modules.h"
#include "models/stages/model.h"
#include "trainer/checkpoint/base_weights.h"
#include "trainer/checkpoint/checkpoint.h"

namespace equipoise {

int64_t LoadedModel::parameter_count() const {
  int64_t count = 0;
  for (const Parameter* p : parameters->parameters()) count += p->numel();
  return count;
}

LoadedModel BuildModel(const ModelConfig& config, const LoadOptions& options) {
  auto layers = BuildLayers(config);
  CheckModules(config, options.freeze, "model.freeze");
  Freeze(layers, options.freeze);
  for (const auto& layer : layers) {
    for (Parameter* p : layer->parameters()) p->trainable = p->trainable && !options.inference;
  }
  LoadedModel model;
  model.config = config;
  model.stage = std::make_unique<Stage>(std::move(layers));
  model.parameters = std::make_unique<FlatParameters>(model.stage->parameters(), options.dtype,
                                                      /*shards=*/1, options.device);
  return model;
}

void LoadFirstWeights(LoadedModel& model, const RunConfig& run) {
  SetFirstWeights(model.parameters->parameters(), model.config, run.model,
                  static_cast<uint64_t>(run.train.seed));
  model.parameters->UpdateCompute();
}

void LoadRun(LoadedModel& model, const RunConfig& run, const std::string& checkpoint_dir) {
  if (model.config.lora.on()) LoadFirstWeights(model, run);
  LoadCheckpointWeights(*model.parameters, checkpoint_dir);
}

void LoadCheckpointWeights(FlatParameters& parameters, const std::string& checkpoint_dir) {
  CheckpointTargets targets;
  for (const Parameter* p : parameters.parameters()) {
    if (p->role == ParameterRole::kBase) continue;
    targets.emplace_back(p->name, HeldPiece(p->stored(), PieceOf(*p)));
  }
  ReadCheckpointTensors(checkpoint_dir, ReadCheckpointIndex(checkpoint_dir, /*verify=*/true),
                        targets);
  parameters.UpdateCompute();
}

}  // namespace equipoise
