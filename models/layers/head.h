#pragma once

#include <string>

#include "models/layers/layer.h"
#include "models/spec/model_config.h"

namespace equipoise {

// The head: final norm, vocabulary projection, loss. Input [tokens, hidden]; where ranks share out
// rows, those of this rank. Tensor ranks (sequence parallelism) gather theirs first. A context rank
// has the loss of its own rows, and gathers for logits alone.
//
// Output with targets: the fp64 scalar sum over targets of weight * cross entropy, times the loss
// scale. Rows without a target are not computed. Where gradients are enabled, the same pass
// computes the gradients, with the scale, of its input and of the projection
// (ops::LinearCrossEntropy).
// Output without targets: logits [tokens, vocabulary] in fp32, or what MicroBatch::decoding asks.
class HeadLayer : public Layer {
 public:
  // `tied` is the embedding's weight where the projection shares it and both are on this stage,
  // else null. With null and a tied weight in `spec` the head holds a copy; its owner is the
  // embedding's stage.
  HeadLayer(const LayerSpec& spec, const TextConfig& config, Parameter* tied,
            const TensorParallel& tensor = {});
  at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input, double loss_scale) override;
  bool can_recompute() const override { return false; }

 private:
  at::Tensor Decode(const MicroBatch& batch, const at::Tensor& input) const;
  // The rows of this rank's tensor ranks together, and those of its context ranks too.
  at::Tensor GatheredRows(const MicroBatch& batch, const at::Tensor& input) const;
  at::Tensor AllRows(const MicroBatch& batch, const at::Tensor& input) const;

  const double eps_;
  const bool tied_;
  Parameter& norm_;
  Parameter* weight_;
};

}  // namespace equipoise
