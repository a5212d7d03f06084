#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/layer.h"
#include "models/model_config.h"

namespace equipoise {

// The whole model as a list of layers, in order. Parameters have no memory yet: FlatParameters
// gives it.
std::vector<std::unique_ptr<Layer>> BuildLayers(const ModelConfig& config);

// Freezes the parameters of the named modules: "vision", "projector", "llm". A tied head's weight
// is the LLM's. Throws ConfigError for another name, and for a module that this model lacks.
void Freeze(std::vector<std::unique_ptr<Layer>>& layers, const std::vector<std::string>& modules);

// Marks the layers of the named modules: their activations are computed again in backward. Throws
// as Freeze does.
void SetRecompute(std::vector<std::unique_ptr<Layer>>& layers,
                  const std::vector<std::string>& modules);

// The module a parameter belongs to: "vision", "projector" or "llm".
std::string ModuleOf(const Parameter& parameter);

}  // namespace equipoise
