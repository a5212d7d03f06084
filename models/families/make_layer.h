#pragma once

#include <functional>
#include <memory>

#include "models/layers/layer.h"
#include "models/layers/rotary_table.h"
#include "models/layers/text_layers.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Makes the layers of one model from LayerSpecs(), in their order. Parts that layers share are made
// once: tables of positions, and the embedding's weight where the head is tied to it.
class LayerMaker {
 public:
  LayerMaker(const ModelConfig& config, const TensorParallel& tensor);

  // Throws ConfigError for more tensor-parallel ranks than can share the layer.
  std::unique_ptr<Layer> Make(const LayerSpec& spec);

 private:
  const ModelConfig config_;
  const TensorParallel tensor_;
  const std::shared_ptr<RotaryTable> rotary_;
  // Makes the layers of encoder and connector; null without them.
  const std::function<std::unique_ptr<Layer>(const LayerSpec&, const TensorParallel&)> encoder_;
  Parameter* embedding_ = nullptr;  // weight of the embedding, once that has been made
};

}  // namespace equipoise
