#pragma once

#include <string>
#include <vector>

#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"

namespace equipoise {

// The module of a layer: "vision", "projector" or "llm".
std::string ModuleOf(LayerKind kind);

// Layers in front of the language model's: those of vision and projector.
int NumEncoderLayers(const ModelConfig& config);

// Throws ConfigError that begins with `key` for a name that is not one of this model's modules.
void CheckModules(const ModelConfig& config, const std::vector<std::string>& modules,
                  const std::string& key);

}  // namespace equipoise
