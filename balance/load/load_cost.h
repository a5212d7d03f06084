#pragma once

#include <string>
#include <vector>

#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Predicted time of a micro-batch, linear in its load. The unit is the caller's (seconds of a
// profile, FLOPs); only ratios matter.
struct LoadCost {
  double patch = 0, patch_pair = 0, image_token = 0, token = 0, token_pair = 0, target = 0;
  double window_pair = 0;

  // Time of the pictures: encoder and connector.
  double OfPictures(const LayerLoad& load) const {
    return patch * static_cast<double>(load.patches) + patch_pair * load.patch_pairs +
           window_pair * load.window_pairs + image_token * static_cast<double>(load.image_tokens);
  }
  double operator()(const LayerLoad& load) const {
    return OfPictures(load) + token * static_cast<double>(load.tokens) +
           token_pair * load.token_pairs + target * static_cast<double>(load.targets);
  }
};

// Forward and backward FLOPs of all layers. `frozen` lists components without gradients
// (model.freeze); layers before the first trainable one have no backward.
LoadCost FlopsOfLoad(const ModelConfig& config, const std::vector<std::string>& frozen);

}  // namespace equipoise
