#pragma once

#include <string>

#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"

namespace equipoise {

// "patch_embedding", "vision_block", "projector", "token_embedding", "decoder_block", "head".
std::string LayerKindName(LayerKind kind);

// The dimensions that a layer's cost depends on, such as "hidden 3200, inner 12800, heads 25, rows
// 1025, qk_norm": equal for layers that cost the same, of whatever model.
std::string LayerShape(const ModelConfig& config, LayerKind kind);

}  // namespace equipoise
