#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/layers/layer.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Consecutive layers of a model, first <= i < last, counted as in LayerSpecs(); last = -1: to its
// end.
struct LayerRange {
  int first = 0;
  int last = -1;
  bool Holds(int layer) const { return first <= layer && (last < 0 || layer < last); }
};

// The model, or a stage of it, as a list of layers, in order. Parameters have no memory yet:
// FlatParameters gives it. A tied head without the embedding in its range holds a copy of the
// weight, under the embedding's name and owned by the stage of the embedding.
//
// With `tensor` a rank has its part of what is split (Parameter::part) and all of the rest; throws
// ConfigError for more ranks than there are attention heads to share.
std::vector<std::unique_ptr<Layer>> BuildLayers(const ModelConfig& config, LayerRange range = {},
                                                const TensorParallel& tensor = {});

// Has the linear layers of blocks compute in fp8 (Parameter::fp8), where their sizes and weights
// allow: forward, and the gradient of the input.
void UseFp8(std::vector<std::unique_ptr<Layer>>& layers);

// Freezes the parameters of the named components (ComponentName()).
void Freeze(std::vector<std::unique_ptr<Layer>>& layers, const std::vector<std::string>& modules);

}  // namespace equipoise
