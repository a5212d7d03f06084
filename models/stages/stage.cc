#include "models/stages/stage.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "configs/base/error.h"
#include "models/ops/record.h"

namespace equipoise {
namespace {

// The first layer that may use a feature whose gradient is wanted, where layers before `first` are
// frozen: behind one that makes features, unless those of the input have gradients.
size_t FirstWanted(const std::vector<std::unique_ptr<Layer>>& layers, size_t first,
                   bool input_marked) {
  size_t layer = input_marked ? 0 : first;
  const auto makes = [](const LayerSpec& spec) {
    return spec.takes_features || spec.output.features > spec.input.features;
  };
  while (!input_marked && layer < layers.size() && !makes(layers[layer]->spec())) ++layer;
  return layer;
}

}  // namespace

// What a piece, a layer or one half of a block, keeps of one micro-batch. Nothing where it had no
// rows.
struct Stage::Kept {
  size_t layer;
  std::optional<Layer::Half> half;  // absent: the whole layer
  bool again;                       // it is run again in backward
  bool offloads = false;            // what it keeps goes to host memory
  at::Tensor input = {};            // a leaf of its graph; undefined for the model's first layer
  at::Tensor output = {};           // the graph's end; undefined until a piece is run again
  bool ran = false;
  std::shared_ptr<OffloadedActivations> offloaded = {};
};

struct Stage::InFlight {
  const MicroBatch* batch;
  double loss_scale;
  size_t first;            // layers before this one are frozen and have kept nothing
  bool input_marked;       // the gradient of the stage's input is wanted
  size_t first_wanted;     // features that layers from this one on use have a gradient
  std::vector<Kept> kept;  // by piece, from layer `first` on
};

Stage::Stage(std::vector<std::unique_ptr<Layer>> layers) : layers_(std::move(layers)) {}
Stage::~Stage() = default;

void Stage::Before(size_t layer) const {
  if (before_layer) before_layer(layer);
}

void Stage::After(size_t layer) const {
  if (after_layer) after_layer(layer);
}

size_t Stage::FirstBackward(bool input_gradient) const {
  if (input_gradient) return 0;
  size_t first = 0;
  while (first < layers_.size() && !layers_[first]->trainable()) ++first;
  return first;
}

void Stage::AddPieces(size_t layer, std::vector<Kept>& kept) const {
  const Recompute what = layers_[layer]->recompute;
  if (layers_[layer]->has_halves() && (what == Recompute::kAttention || what == Recompute::kMlp)) {
    kept.push_back({layer, Layer::Half::kAttention, what == Recompute::kAttention});
    kept.push_back({layer, Layer::Half::kMlp, what == Recompute::kMlp});
  } else {
    const bool again = what == Recompute::kFull || what == Recompute::kFullOffload;
    const bool offloads = what == Recompute::kOffload || what == Recompute::kFullOffload;
    kept.push_back({layer, std::nullopt, again && layers_[layer]->can_recompute(),
                    offloads && layers_[layer]->has_halves()});
  }
}

at::Tensor Stage::Run(const InFlight& pass, const Kept& kept) {
  Layer& layer = *layers_[kept.layer];
  layer.noise = pass.batch->noise;
  const ops::RecomputeElementwise again(layer.recompute == Recompute::kElementwise &&
                                        layer.has_halves());
  return kept.half ? layer.ForwardHalf(*kept.half, *pass.batch, kept.input)
                   : layer.Forward(*pass.batch, kept.input, pass.loss_scale);
}

at::Tensor Stage::RunAndOffload(const InFlight& pass, const Flow& flow, Kept& kept) {
  const ops::SavedActivations saved;
  at::Tensor output = Run(pass, kept);
  if (!output.defined()) return output;
  std::vector<at::Tensor> activations = saved.All();
  activations.push_back(kept.input);
  kept.offloaded = std::make_shared<OffloadedActivations>(activations, flow.features);
  // The memory of the layer before: its copies had this layer's time.
  if (const auto before = leaving_.lock()) before->Release();
  leaving_ = kept.offloaded;
  return output;
}

at::Tensor Stage::ForwardPiece(const InFlight& pass, const at::Tensor& input, const Flow& flow,
                               Kept& kept) {
  if (input.defined()) {
    kept.input = input.detach();
    kept.input.set_requires_grad(&kept != &pass.kept.front() || pass.input_marked);
  }
  const at::AutoGradMode grad(!kept.again);
  at::Tensor output = kept.offloads ? RunAndOffload(pass, flow, kept) : Run(pass, kept);
  kept.ran = output.defined();
  if (!kept.ran) {
    kept.input.reset();
    return {};
  }
  if (!kept.again) kept.output = output;
  return output.detach();
}

at::Tensor Stage::Forward(int id, const MicroBatch& batch, const at::Tensor& input,
                          double loss_scale) {
  EQUIPOISE_CHECK(in_flight_.count(id) == 0, "micro-batch ", id, " is in flight already");
  auto pass = std::make_unique<InFlight>();
  pass->batch = &batch;
  pass->loss_scale = loss_scale;
  pass->input_marked = input.defined() && input.requires_grad();
  pass->first = FirstBackward(pass->input_marked);
  pass->first_wanted = FirstWanted(layers_, pass->first, pass->input_marked);
  for (size_t i = pass->first; i < layers_.size(); ++i) AddPieces(i, pass->kept);

  Flow flow = TakeInput(batch, input);
  {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < pass->first; ++i) {
      Before(i);
      const at::Tensor x = EnterLayer(*layers_[i], flow);
      LeaveLayer(*layers_[i], batch, layers_[i]->Forward(batch, x, loss_scale),
                 i + 1 == layers_.size(), flow);
      After(i);
    }
  }
  at::Tensor x;
  for (size_t i = 0; i < pass->kept.size(); ++i) {
    Kept& kept = pass->kept[i];
    const Layer& layer = *layers_[kept.layer];
    if (i == 0 || pass->kept[i - 1].layer != kept.layer) {
      Before(kept.layer);
      x = EnterLayer(layer, flow);
    }
    x = ForwardPiece(*pass, x, flow, kept);
    if (i + 1 == pass->kept.size() || pass->kept[i + 1].layer != kept.layer) {
      LeaveLayer(layer, batch, std::move(x), kept.layer + 1 == layers_.size(), flow);
      After(kept.layer);
    }
  }
  // What keeps nothing may never come back: schedules leave out such a stage's backward.
  if (!pass->kept.empty()) in_flight_[id] = std::move(pass);
  return JoinFeatures(flow);
}

Flow Stage::TakeInput(const MicroBatch& batch, const at::Tensor& input) const {
  const LayerSpec& spec = layers_.front()->spec();
  const at::NoGradGuard no_grad;
  Flow flow = InputFlow(input, spec, batch);
  // A view that a block keeps would hold the memory of the features, which only pass by.
  if (!flow.features.empty() && spec.has_halves) flow.rows = flow.rows.clone();
  return flow;
}

at::Tensor Stage::BackwardPiece(const InFlight& pass, Kept& kept, const at::Tensor& grad) {
  if (!kept.ran) return {};
  // Without a gradient too: the memory that the copies go to is freed after this.
  if (kept.offloaded) kept.offloaded->Wait();
  // Without a gradient from above only a loss, a scalar, can begin.
  if (!grad.defined() && kept.layer + 1 < layers_.size()) return {};
  if (!kept.output.defined()) {
    const at::AutoGradMode enabled(true);
    kept.output = Run(pass, kept);
  }
  if (!kept.output.requires_grad() || (!grad.defined() && kept.output.dim() != 0)) return {};
  torch::autograd::backward({kept.output}, {grad});
  return kept.input.defined() ? kept.input.grad() : at::Tensor();
}

at::Tensor Stage::WalkBackwards(int id, const at::Tensor& grad_output,
                                const std::function<void(size_t layer)>& done) {
  const auto found = in_flight_.find(id);
  if (found == in_flight_.end() && FirstBackward(false) == layers_.size()) return {};
  EQUIPOISE_CHECK(found != in_flight_.end(), "micro-batch ", id, " is not in flight");
  const std::unique_ptr<InFlight> pass = std::move(found->second);
  in_flight_.erase(found);

  const MicroBatch& batch = *pass->batch;
  Flow flow = OutputFlow(grad_output, layers_.back()->spec(), batch);
  at::Tensor grad;
  size_t begun = layers_.size();
  while (!pass->kept.empty()) {
    const size_t layer = pass->kept.back().layer;
    if (layer != begun) {
      Before(layer);
      grad = EnterBackward(*layers_[layer], batch, layer >= pass->first_wanted, flow);
    }
    begun = layer;
    // This layer's, unless they came with the one behind it, and those of the layer that is next.
    for (size_t ahead = 1; ahead <= std::min<size_t>(2, pass->kept.size()); ++ahead) {
      const Kept& each = pass->kept[pass->kept.size() - ahead];
      if (each.offloaded) each.offloaded->Return();
    }
    grad = BackwardPiece(*pass, pass->kept.back(), grad);
    pass->kept.pop_back();
    if (!pass->kept.empty() && pass->kept.back().layer == layer) continue;
    LeaveBackward(*layers_[layer], batch, std::move(grad), layer == 0, flow);
    After(layer);
    done(layer);
  }
  return JoinFeatures(flow);
}

at::Tensor Stage::Backward(int id, const at::Tensor& grad_output) {
  return WalkBackwards(id, grad_output, [this, id](size_t layer) {
    if (on_layer_backward) on_layer_backward(id, layer);
  });
}

void Stage::SetDeferred(DeferredGradients* deferred) const {
  for (const std::unique_ptr<Layer>& layer : layers_) {
    for (Parameter* parameter : layer->parameters()) parameter->deferred = deferred;
  }
}

at::Tensor Stage::BackwardInput(int id, const at::Tensor& grad_output) {
  EQUIPOISE_CHECK(deferred_.count(id) == 0, "micro-batch ", id, " has weight gradients left");
  DeferredGradients& later = deferred_[id];
  struct AtOnce {
    const Stage& stage;
    ~AtOnce() { stage.SetDeferred(nullptr); }
  } at_once{*this};
  SetDeferred(&later);
  return WalkBackwards(id, grad_output, [this, id, &later](size_t layer) {
    later.push_back([this, id, layer] {
      if (on_layer_backward) on_layer_backward(id, layer);
    });
  });
}

void Stage::BackwardWeights(int id) {
  const auto found = deferred_.find(id);
  EQUIPOISE_CHECK(found != deferred_.end(), "micro-batch ", id, " has no weight gradients left");
  DeferredGradients products = std::move(found->second);
  deferred_.erase(found);
  const at::NoGradGuard no_grad;
  // Each gives back what it kept as soon as it is done.
  for (std::function<void()>& product : products) std::exchange(product, nullptr)();
}

void Stage::EndStep(int micro_batches) {
  EQUIPOISE_CHECK(deferred_.empty(), "weight gradients are left");
  std::map<int, std::unique_ptr<InFlight>> next;
  for (auto& [id, pass] : in_flight_) {
    EQUIPOISE_CHECK(id >= micro_batches, "micro-batch ", id,
                    " is in flight at the end of its step");
    next.emplace(id - micro_batches, std::move(pass));
  }
  in_flight_ = std::move(next);
}

void Stage::DropInFlight() { in_flight_.clear(); }

at::Tensor Stage::Evaluate(const MicroBatch& batch, const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  Flow flow = TakeInput(batch, input);
  for (size_t i = 0; i < layers_.size(); ++i) {
    Before(i);
    layers_[i]->noise = 0;
    const at::Tensor x = EnterLayer(*layers_[i], flow);
    LeaveLayer(*layers_[i], batch, layers_[i]->Forward(batch, x, /*loss_scale=*/1.0),
               i + 1 == layers_.size(), flow);
    After(i);
  }
  return JoinFeatures(flow);
}

std::vector<Parameter*> Stage::parameters() const {
  std::vector<Parameter*> all;
  for (const std::unique_ptr<Layer>& layer : layers_) {
    all.insert(all.end(), layer->parameters().begin(), layer->parameters().end());
  }
  return all;
}

size_t Stage::num_deferred() const {
  size_t count = 0;
  for (const auto& [id, products] : deferred_) count += products.size();
  return count;
}

int64_t Stage::offloaded_bytes() const {
  int64_t bytes = 0;
  for (const auto& [id, pass] : in_flight_) {
    for (const Kept& kept : pass->kept) bytes += kept.offloaded ? kept.offloaded->bytes() : 0;
  }
  return bytes;
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
