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

// Freezes the parameters of the named modules: "vision", "projector", "llm". Throws ConfigError.
void Freeze(std::vector<std::unique_ptr<Layer>>& layers, const std::vector<std::string>& modules);

// The module a parameter belongs to: "vision", "projector" or "llm".
std::string ModuleOf(const Parameter& parameter);

// Draws every master weight as Transformers initialises this architecture (normal with
// initializer_range, zeros, ones, layer scale). Each parameter's numbers depend on (seed, name)
// alone, so they are equal on every mesh.
void InitializeWeights(const std::vector<Parameter*>& parameters, const ModelConfig& config, uint64_t seed);

// Reads the master weights from a Hugging Face folder (model.safetensors or a sharded index), only
// the byte ranges of `parameters`. Throws DataError for missing names and other shapes.
void LoadWeights(const std::vector<Parameter*>& parameters, const ModelConfig& config, const std::string& folder);

}  // namespace equipoise
