#pragma once

#include <string>
#include <vector>

#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Layers in front of the language model's: those of encoder and connector.
int NumEncoderLayers(const std::vector<LayerSpec>& specs);
int NumEncoderLayers(const ModelConfig& config);

// Throws ConfigError that begins with `key` for a name that is not one of this model's components
// (ComponentName()).
void CheckModules(const ModelConfig& config, const std::vector<std::string>& modules,
                  const std::string& key);

}  // namespace equipoise
