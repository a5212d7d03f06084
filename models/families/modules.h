#pragma once

#include <string>
#include <vector>

#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Number of layers of encoder and connector, which come before those of the language model.
int NumEncoderLayers(const std::vector<LayerSpec>& specs);
int NumEncoderLayers(const ModelConfig& config);
// Layers from the first to the last to which what the encoder has made of pictures is given: the
// token embedding, or the last decoder layer behind which a feature is added (DeepStack).
int LayersWithPictures(const ModelConfig& config);

// Checks that each name is that of a component of this model (ComponentName()). Throws ConfigError
// that begins with `key`.
void CheckModules(const ModelConfig& config, const std::vector<std::string>& modules,
                  const std::string& key);

}  // namespace equipoise
