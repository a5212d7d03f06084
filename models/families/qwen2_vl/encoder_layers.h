#pragma once

#include <functional>
#include <memory>

#include "models/layers/layer.h"
#include "models/spec/model_config.h"

namespace equipoise {

// A maker of the layers of Qwen2VlEncoderSpecs() for one model, which share a table of patches.
std::function<std::unique_ptr<Layer>(const LayerSpec& spec, const TensorParallel& tensor)>
Qwen2VlLayerMaker(const ModelConfig& config);

}  // namespace equipoise
