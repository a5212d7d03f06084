#pragma once

#include <string>
#include <vector>

#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Predicted time of a micro-batch as a sum over what it holds. The unit is the caller's (seconds of
// a profile, FLOPs); only ratios matter here.
struct LoadCost {
  double tile = 0, token = 0, token_pair = 0, target = 0;

  double operator()(const LayerLoad& load) const {
    return tile * static_cast<double>(load.tiles) + token * static_cast<double>(load.tokens) +
           token_pair * load.token_pairs + target * static_cast<double>(load.targets);
  }
};

// Forward and backward FLOPs of all layers. `frozen`: modules without gradients (model.freeze);
// layers before the first trainable one run no backward.
LoadCost FlopsOfLoad(const ModelConfig& config, const std::vector<std::string>& frozen);

}  // namespace equipoise
