#pragma once

#include <string>
#include <vector>

#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"

namespace equipoise {

// What is trained of components that are frozen otherwise (ModelConfig::unfreeze). LibTorch-free.

// Marks the layers with such modules as LayerSpec::unfrozen, and gives their other weights the role
// kFrozen. Their costs stay those of layers that are trained whole.
void MarkUnfrozen(const ModelConfig& config, std::vector<LayerSpec>* specs);

// How much of each frozen component is trained; empty: nothing.
std::string DescribeUnfrozen(const ModelConfig& config);

}  // namespace equipoise
