#pragma once

#include <string>

#include "models/layers/layer.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Final norm, vocabulary projection, loss. Input: [tokens, hidden].
//
// With targets: the fp64 scalar sum over targets of weight * cross entropy, times the loss scale.
// Rows without a target cost nothing. Under gradients the same pass makes the gradient of its input
// and, scaled already, the projection's (ops::LinearCrossEntropy).
// Without targets: logits [tokens, vocabulary] in fp32.
class HeadLayer : public Layer {
 public:
  // `tied` is the embedding's weight when the projection shares it and both are on this stage, else
  // null: a spec with a tied weight then makes a copy, which the embedding's stage owns.
  HeadLayer(const LayerSpec& spec, const TextConfig& config, Parameter* tied,
            const TensorParallel& tensor = {});
  at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input, double loss_scale) override;
  bool can_recompute() const override { return false; }

 private:
  const double eps_;
  const bool tied_;
  Parameter& norm_;
  Parameter* weight_;
};

}  // namespace equipoise
