#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <string>
#include <vector>

#include "models/spec/model_config.h"
#include "models/stages/stage.h"
#include "parallel/parameter.h"

namespace equipoise {

// A whole model on this rank, with allocated parameters.
struct LoadedModel {
  ModelConfig config;
  std::unique_ptr<Stage> stage;
  std::unique_ptr<FlatParameters> parameters;

  int64_t parameter_count() const;
};

struct LoadOptions {
  at::ScalarType dtype = at::kFloat;  // dtype of the computation
  at::Device device = at::kCPU;
  std::vector<std::string> freeze;  // components without gradients
  bool inference = false;           // no parameter has a gradient
};

// Builds a model whose weights are not set yet.
LoadedModel BuildModel(const ModelConfig& config, const LoadOptions& options);

// Sets the weights from a Hugging Face folder.
void LoadHuggingFace(LoadedModel& model, const std::string& folder);
// Sets the weights from a checkpoint folder (step-*). Throws DataError.
void LoadCheckpointWeights(LoadedModel& model, const std::string& checkpoint_dir);

}  // namespace equipoise
