#pragma once

#include <memory>

#include "models/layers/layer.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Makes the layer of one of LlavaEncoderSpecs().
std::unique_ptr<Layer> MakeLlavaEncoderLayer(const LayerSpec& spec, const ModelConfig& config,
                                             const TensorParallel& tensor);

}  // namespace equipoise
