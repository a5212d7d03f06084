#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Patch embedding, blocks and merger, with costs on one of `tensor_ranks`. Throws ConfigError for
// more ranks than can share them.
std::vector<LayerSpec> Qwen2VlEncoderSpecs(const ModelConfig& config, int tensor_ranks);

// Whether the attention of a block stays within windows.
bool HasWindows(const VisionConfig& vision, int64_t block);

// Positions on a side of the square of learned ones; 0: there are none.
int64_t PositionSide(const VisionConfig& vision);

// Names of the linear layers of a block's MLP.
struct MlpNames {
  std::vector<std::string> inner;  // several: gated
  std::string outer;
};
MlpNames MlpNamesOf(const VisionConfig& vision);

// Names of the parts of each merger: first that of the last block's output, then those of the
// features (VisionConfig::deepstack_visual_indexes).
struct MergerNames {
  std::string norm, linear_1, linear_2;
  bool of_squares = false;  // the norm is over all patches of a square together
};
std::vector<MergerNames> MergersOf(const VisionConfig& vision);

}  // namespace equipoise
