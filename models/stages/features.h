#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/layers/layer.h"

namespace equipoise {

// Features of the encoder that travel beside a layer's rows to later layers (DeepStack, arXiv
// 2406.04334; ActivationSpec::features). Between the layers of a stage they are tensors of their
// own; between stages they are rows behind the rows. What becomes of them at a layer says its
// spec:
// - one more behind it than before it: the layer's output is one, as well;
// - one less: the first is added to the rows of image tokens in the layer's output;
// - LayerSpec::takes_features: they are rows of the layer's input and of its output;
// - else they pass by.
struct Flow {
  at::Tensor rows;                   // undefined: none
  std::vector<at::Tensor> features;  // none without pictures
};

// The flow at a stage's end, of `all`: rows with the features that the spec's input, or output, has
// behind them, as views. A layer that takes features has them as one tensor.
Flow InputFlow(const at::Tensor& all, const LayerSpec& first, const MicroBatch& batch);
Flow OutputFlow(const at::Tensor& all, const LayerSpec& last, const MicroBatch& batch);
// The rows with the features behind them.
at::Tensor JoinFeatures(const Flow& flow);

// The layer's input. Leaves the features that pass by.
at::Tensor EnterLayer(const Layer& layer, Flow& flow);
// Takes the layer's output, which is written to where a feature is added: no operation may have
// saved it for its backward. `last`: of the stage.
void LeaveLayer(const Layer& layer, const MicroBatch& batch, at::Tensor output, bool last,
                Flow& flow);

// The same backwards, of gradients: that of the layer's output. `wanted`: whether those of features
// are; a feature's gradient is whole on every tensor rank.
at::Tensor EnterBackward(const Layer& layer, const MicroBatch& batch, bool wanted, Flow& gradient);
// Takes the gradient of the layer's input. `first`: of the stage.
void LeaveBackward(const Layer& layer, const MicroBatch& batch, at::Tensor input, bool first,
                   Flow& gradient);

}  // namespace equipoise
