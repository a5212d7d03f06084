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
  struct Names {
    std::string norm;    // the norm's weight
    std::string head;    // the layer
    std::string weight;  // the projection: the layer's own, or the embedding's when they are tied
  };
  // `tied` is the embedding's weight when the projection shares it and both are on this stage, else
  // null.
  HeadLayer(const Names& names, const TextConfig& config, Parameter* tied,
            const TensorParallel& tensor = {});
  at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input, double loss_scale) override;
  bool can_recompute() const override { return false; }
  // The projection is a copy: the embedding's stage owns the weight.
  void HoldCopy() { weight_->part.owner = false; }

 private:
  const double eps_;
  const bool tied_;
  Parameter* norm_;
  Parameter* weight_;
};

}  // namespace equipoise
