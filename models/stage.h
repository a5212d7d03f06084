#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "models/layer.h"

namespace equipoise {

// Consecutive layers on one rank. Runs them forwards on detached inputs, keeps what backward needs
// for each micro-batch in flight, and walks them backwards.
//
// Not thread-safe. Bit-equal for every order in which micro-batches are run, as long as the
// backward passes come in ascending order.
class Stage {
 public:
  explicit Stage(std::vector<std::unique_ptr<Layer>> layers) : layers_(std::move(layers)) {}

  // Runs the layers on a micro-batch and keeps the activations under `id` until Backward(id).
  // The first stage's `input` is undefined. The last stage returns the loss (see HeadLayer), which
  // already is the sum of its token losses times `loss_scale`.
  // `batch` must live until Backward(id).
  at::Tensor Forward(int id, const MicroBatch& batch, const at::Tensor& input, double loss_scale);

  // Adds every trainable parameter's gradient and returns the gradient of the stage's input
  // (undefined when no trainable parameter lies before it). `grad_output` is undefined on the
  // last stage: the head has made its gradient with the loss. Layers before the first trainable
  // one cost nothing here and have kept nothing.
  at::Tensor Backward(int id, const at::Tensor& grad_output, bool needs_input_gradient = false);

  // Forward without gradients; the last stage gives the loss, or logits when the batch has no targets.
  at::Tensor Evaluate(const MicroBatch& batch, const at::Tensor& input);

  // Called during Backward as soon as a layer's gradients of this micro-batch are complete,
  // from the last layer to the first; `index` is the layer's index in layers().
  std::function<void(int id, size_t index)> on_layer_backward;

  const std::vector<std::unique_ptr<Layer>>& layers() const { return layers_; }
  // All parameters in the order of the layers; a tied head's weight appears once.
  std::vector<Parameter*> parameters() const;

 private:
  struct InFlight;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::map<int, std::shared_ptr<InFlight>> in_flight_;
};

}  // namespace equipoise
