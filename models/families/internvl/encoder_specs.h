#pragma once

#include <vector>

#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Layers of InternViT (patch embedding and blocks), and the projector (pixel shuffle and MLP), with
// costs on one of `tensor_ranks`. Throws ConfigError for more ranks than can share them.
std::vector<LayerSpec> InternVlEncoderSpecs(const ModelConfig& config, int tensor_ranks);

}  // namespace equipoise
