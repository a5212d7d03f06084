#pragma once

#include <memory>

#include "models/layers/layer.h"
#include "models/layers/rotary_table.h"
#include "models/layers/text_layers.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Makes the layers of one model from LayerSpecs(), in their order. Parts that layers share are made
// once: the rotary table, and the embedding's weight where the head is tied to it.
class LayerMaker {
 public:
  LayerMaker(const ModelConfig& config, const TensorParallel& tensor)
      : config_(config), tensor_(tensor), rotary_(std::make_shared<RotaryTable>(config.text)) {}

  // Throws ConfigError for more tensor-parallel ranks than can share the layer.
  std::unique_ptr<Layer> Make(const LayerSpec& spec);

 private:
  const ModelConfig config_;
  const TensorParallel tensor_;
  const std::shared_ptr<RotaryTable> rotary_;
  Parameter* embedding_ = nullptr;  // weight of the embedding, once that has been made
};

}  // namespace equipoise
