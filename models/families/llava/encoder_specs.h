#pragma once

#include <vector>

#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"

namespace equipoise {

// The vector behind each row of patches, where pictures have any resolution: a parameter of the
// projector's layer.
inline constexpr char kImageNewline[] = "image_newline";

// Layers of CLIP's or SigLIP's vision transformer (patch embedding, the blocks that are computed,
// and as one layer the weights that are not), and the projector, with costs on one of
// `tensor_ranks`. Throws ConfigError for more ranks than can share them.
std::vector<LayerSpec> LlavaEncoderSpecs(const ModelConfig& config, int tensor_ranks);

}  // namespace equipoise
