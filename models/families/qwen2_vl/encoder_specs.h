#pragma once

#include <cstdint>
#include <vector>

#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Patch embedding, blocks and merger, with costs on one of `tensor_ranks`. Throws ConfigError for
// more ranks than can share them.
std::vector<LayerSpec> Qwen2VlEncoderSpecs(const ModelConfig& config, int tensor_ranks);

// Whether the attention of a block stays within windows.
bool HasWindows(const VisionConfig& vision, int64_t block);

}  // namespace equipoise
