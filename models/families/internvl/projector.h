#pragma once

#include <string>
#include <vector>

#include "models/layers/layer.h"
#include "models/spec/model_config.h"

namespace equipoise {

// The projector: pixel shuffle, LayerNorm and two linear layers with GELU in between. Input
// [tiles, patches + 1, vision hidden] of the encoder, output [image tokens, hidden].
class ProjectorLayer : public Layer {
 public:
  ProjectorLayer(const LayerSpec& spec, const ModelConfig& config,
                 const TensorParallel& tensor = {});
  at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input, double loss_scale) override;

 private:
  const int64_t square_;  // patches along one side of the square that becomes one token
  Parameter& norm_weight_;
  Parameter& norm_bias_;
  ColumnLinears linear_1_;
  RowLinear linear_2_;
};

}  // namespace equipoise
