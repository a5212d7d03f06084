#include "trainer/checkpoint/loaded_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "models/families/modules.h"
#include "models/stages/model.h"
#include "trainer/checkpoint/base_weights.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/first_folders.h"

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

void CheckBase(const RunConfig& run, const std::string& checkpoint_dir) {
  const Json sections = ReadCheckpointIndex(checkpoint_dir, /*verify=*/false).sections;
  if (!sections.contains("model") || !sections["model"].contains("base_weights")) return;
  const std::string now = BaseIdentity(run.model, static_cast<uint64_t>(run.train.seed));
  if (sections["model"]["base_weights"] == now) return;
  const bool parts = !run.model.llm.empty();
  throw ConfigError(fmt::format(
      "{}: its adapters were trained over another base than {}, or its weights changed since; give "
      "{} that they were trained over as --set {}",
      checkpoint_dir, fmt::join(FoldersRead(run.model), " and "),
      parts ? "the folders" : "the folder",
      parts ? "model.vision=FOLDER --set model.llm=FOLDER" : "model.hf=FOLDER"));
}

void LoadRun(LoadedModel& model, const RunConfig& run, const std::string& checkpoint_dir) {
  if (model.config.lora.on()) {
    CheckBase(run, checkpoint_dir);
    LoadFirstWeights(model, run);
  }
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
