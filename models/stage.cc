#include "models/stage.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include "configs/error.h"

namespace equipoise {

// What one layer keeps of one micro-batch. Nothing where it had no rows.
struct Stage::Kept {
  at::Tensor input;   // a leaf of the layer's graph; undefined for the model's first layer
  at::Tensor output;  // the graph's end; undefined when the layer is run again in backward
  bool ran = false;
};

struct Stage::InFlight {
  const MicroBatch* batch;
  double loss_scale;
  size_t first;            // layers before this one are frozen and have kept nothing
  bool input_marked;       // the gradient of the stage's input is wanted
  std::vector<Kept> kept;  // by layer, from `first` on
};

Stage::Stage(std::vector<std::unique_ptr<Layer>> layers) : layers_(std::move(layers)) {}
Stage::~Stage() = default;

size_t Stage::FirstRecorded(const at::Tensor& input) const {
  if (input.defined() && input.requires_grad()) return 0;
  size_t first = 0;
  while (first < layers_.size() && !layers_[first]->trainable()) ++first;
  return first;
}

at::Tensor Stage::ForwardLayer(size_t index, const InFlight& pass, const at::Tensor& input,
                               Kept& kept) {
  Layer& layer = *layers_[index];
  if (input.defined()) {
    kept.input = input.detach();
    kept.input.set_requires_grad(index > pass.first || pass.input_marked);
  }
  const bool again = layer.recompute && layer.can_recompute();
  const at::AutoGradMode grad(!again);
  at::Tensor output = layer.Forward(*pass.batch, kept.input, pass.loss_scale);
  kept.ran = output.defined();
  if (!kept.ran) {
    kept.input.reset();
    return {};
  }
  if (!again) kept.output = output;
  return output.detach();
}

at::Tensor Stage::Forward(int id, const MicroBatch& batch, const at::Tensor& input,
                          double loss_scale) {
  EQUIPOISE_CHECK(in_flight_.count(id) == 0, "micro-batch ", id, " is in flight already");
  auto pass = std::make_unique<InFlight>();
  pass->batch = &batch;
  pass->loss_scale = loss_scale;
  pass->input_marked = input.defined() && input.requires_grad();
  pass->first = FirstRecorded(input);
  pass->kept.resize(layers_.size() - pass->first);

  at::Tensor x = input;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (i < pass->first) {
      const at::NoGradGuard no_grad;
      x = layers_[i]->Forward(batch, x, loss_scale);
    } else {
      x = ForwardLayer(i, *pass, x, pass->kept[i - pass->first]);
    }
  }
  in_flight_[id] = std::move(pass);
  return x;
}

at::Tensor Stage::BackwardLayer(size_t index, const InFlight& pass, Kept& kept,
                                const at::Tensor& grad) {
  if (!kept.ran) return {};
  // Without a gradient from above only a loss, a scalar, can begin.
  if (!grad.defined() && index + 1 < layers_.size()) return {};
  if (!kept.output.defined()) {
    const at::AutoGradMode enabled(true);
    kept.output = layers_[index]->Forward(*pass.batch, kept.input, pass.loss_scale);
  }
  if (!kept.output.requires_grad() || (!grad.defined() && kept.output.dim() != 0)) return {};
  torch::autograd::backward({kept.output}, {grad});
  return kept.input.defined() ? kept.input.grad() : at::Tensor();
}

at::Tensor Stage::Backward(int id, const at::Tensor& grad_output) {
  const auto found = in_flight_.find(id);
  EQUIPOISE_CHECK(found != in_flight_.end(), "micro-batch ", id, " is not in flight");
  const std::unique_ptr<InFlight> pass = std::move(found->second);
  in_flight_.erase(found);

  at::Tensor grad = grad_output;
  for (size_t i = layers_.size(); i-- > pass->first;) {
    Kept& kept = pass->kept[i - pass->first];
    grad = BackwardLayer(i, *pass, kept, grad);
    kept = Kept();
    if (on_layer_backward) on_layer_backward(id, i);
  }
  return grad;
}

at::Tensor Stage::Evaluate(const MicroBatch& batch, const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  at::Tensor x = input;
  for (const std::unique_ptr<Layer>& layer : layers_) {
    x = layer->Forward(batch, x, /*loss_scale=*/1.0);
  }
  return x;
}

std::vector<Parameter*> Stage::parameters() const {
  std::vector<Parameter*> all;
  for (const std::unique_ptr<Layer>& layer : layers_) {
    all.insert(all.end(), layer->parameters().begin(), layer->parameters().end());
  }
  return all;
}

size_t Stage::num_kept() const {
  size_t count = 0;
  for (const auto& [id, pass] : in_flight_) {
    count += static_cast<size_t>(std::count_if(pass->kept.begin(), pass->kept.end(),
                                               [](const Kept& kept) { return kept.ran; }));
  }
  return count;
}

}  // namespace equipoise
