#pragma once

#include <string>
#include <vector>

#include "models/spec/model_config.h"
#include "trainer/checkpoint/model_source.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// The model, which takes pictures as the folder of `adapters` says, where there are some.
ModelConfig ReadAskedModel(const ModelSource& source, const std::string& adapters);

// Settings of the run in which the model was trained, or else of its adapters' folder and of its
// own; overridden by `--set`, which alone says how the ranks share the model here.
RunConfig ReadSettings(const ModelSource& source, const ModelConfig& model,
                       const std::string& adapters, const std::vector<std::string>& set);

}  // namespace equipoise
