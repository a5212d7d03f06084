#include "models/stages/model_part.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "configs/base/error.h"
#include "models/families/modules.h"
#include "models/stages/boundary_rows.h"
#include "models/stages/model.h"
#include "parallel/device.h"

namespace equipoise {
namespace {

// The tied weight first: it is complete last, and gradients are reduced from the end.
std::vector<Parameter*> InOrder(const std::map<int, std::unique_ptr<Stage>>& stages,
                                const std::vector<Parameter*>& first) {
  std::vector<Parameter*> all = first;
  for (const auto& [number, stage] : stages) {
    for (Parameter* parameter : stage->parameters()) {
      if (std::find(first.begin(), first.end(), parameter) == first.end()) all.push_back(parameter);
    }
  }
  return all;
}

}  // namespace

ModelPart::ModelPart(const ModelConfig& config, StageLayout plan, int pipeline_rank,
                     const Options& options)
    : config_(config), plan_(std::move(plan)), dtype_(options.dtype), device_(options.device) {
  CheckModules(config, options.freeze, "model.freeze");
  const std::vector<Recompute>& recompute = plan_.plan().recompute;
  EQUIPOISE_CHECK(recompute.empty() || recompute.size() == plan_.specs().size(), "recompute of ",
                  recompute.size(), " layers");
  for (const int number : plan_.graph().StagesOf(pipeline_rank)) {
    const LayerSpan span = plan_.plan().LayersOf(number);
    auto layers = BuildLayers(config, {span.begin, span.end}, options.tensor);
    Freeze(layers, options.freeze);
    for (size_t i = 0; i < layers.size(); ++i) {
      for (Parameter* p : layers[i]->parameters()) {
        p->trainable = p->trainable && !options.inference;
        p->part.owner = p->part.owner && plan_.plan().CopyOf(number) == 0;
      }
      if (!recompute.empty()) layers[i]->recompute = recompute[static_cast<size_t>(span.begin) + i];
    }
    auto stage = std::make_unique<Stage>(std::move(layers));
    stage->on_layer_backward = [this, number, made = stage.get()](int, size_t layer) {
      if (telling_ready_ == number && on_layer_ready)
        on_layer_ready(made->layers()[layer]->parameters());
    };
    stages_[number] = std::move(stage);
  }
  parameters_ = std::make_unique<FlatParameters>(InOrder(stages_, tied_copies()), options.dtype,
                                                 options.shards, options.device);
}

std::vector<Parameter*> ModelPart::tied_copies() const {
  const std::string& tied = plan_.specs().back().tied.name;
  if (tied.empty()) return {};
  std::vector<Parameter*> copies;
  for (const auto& [number, stage] : stages_) {
    const bool last = number + 1 == plan_.plan().num_stages();
    const std::vector<Parameter*> parameters = stage->parameters();
    for (Parameter* parameter : parameters) {
      if (parameter->name != tied) continue;
      // Both ends in one stage share the weight.
      if (!last || !parameter->part.owner) copies.push_back(parameter);
    }
  }
  return copies;
}

std::vector<Parameter*> ModelPart::encoder_copy() const {
  std::vector<Parameter*> copy;
  if (plan_.plan().encoder_copies() == 1) return copy;
  for (const auto& [number, stage] : stages_) {
    if (!plan_.plan().ComponentOfStage(number).encoder) continue;
    for (Parameter* parameter : stage->parameters()) {
      if (parameter->trainable) copy.push_back(parameter);
    }
  }
  return copy;
}

void ModelPart::Begin(Pass pass) {
  pass_ = std::move(pass);
  loss_.reset();
  moved_.clear();
  last_use_.assign(pass_.loads.size(), {});
  const auto is_here = [this](const Op& op) {
    return IsCompute(op.kind) && op.kind != OpKind::kWeightGradient && stages_.count(op.stage) > 0;
  };
  for (const std::vector<Op>& ops : pass_.schedule->ranks) {
    for (const Op& op : ops) {
      if (is_here(op)) {
        last_use_[static_cast<size_t>(op.micro_batch)] = {op.stage, IsForward(op.kind)};
      }
    }
  }
}

const MicroBatch& ModelPart::Batch(int micro_batch) {
  const MicroBatch& batch = pass_.batch(micro_batch);
  if (device_.is_cpu()) return batch;
  const auto found = moved_.find(micro_batch);
  if (found != moved_.end()) return found->second;
  MicroBatch moved = OnDevice(batch, device_);
  if (takes_pixels()) moved.pixel_values = ToDevice(batch.pixel_values, device_);
  return moved_[micro_batch] = std::move(moved);
}

void ModelPart::ReleaseAfter(int stage, int micro_batch, bool forward) {
  const LastUse& last = last_use_[static_cast<size_t>(micro_batch)];
  if (last.stage != stage || last.forward != forward) return;
  moved_.erase(micro_batch);
  if (pass_.release) pass_.release(micro_batch);
}

at::Tensor ModelPart::Forward(int stage, int micro_batch, const std::vector<at::Tensor>& inputs) {
  const MicroBatch& batch = Batch(micro_batch);
  Stage& part = *stages_.at(stage);
  const at::Tensor input = JoinRows(inputs);
  at::Tensor result;
  if (pass_.evaluate) {
    result = part.Evaluate(batch, input);
  } else {
    at::Tensor marked = input.defined() ? input.detach() : input;
    const auto& node = plan_.graph().stages[static_cast<size_t>(stage)];
    if (marked.defined() && node.needs_input_gradient) marked.set_requires_grad(true);
    result = part.Forward(micro_batch, batch, marked, pass_.loss_scale);
  }
  const bool has_result = stage + 1 == plan_.plan().num_stages();
  if (has_result && pass_.on_result) pass_.on_result(micro_batch, result);
  if (has_result && result.defined() && result.dim() == 0) {
    const at::Tensor loss = result.detach();
    loss_ = loss_.defined() ? at::add(loss_, loss) : loss;
  }
  ReleaseAfter(stage, micro_batch, /*forward=*/true);
  return has_result ? at::Tensor() : result;
}

std::vector<at::Tensor> ModelPart::Backward(int stage, int micro_batch, const at::Tensor& gradient,
                                            bool last) {
  telling_ready_ = last ? stage : -1;
  at::Tensor input = stages_.at(stage)->Backward(micro_batch, gradient);
  telling_ready_ = -1;
  return InputGradients(stage, micro_batch, std::move(input));
}

std::vector<at::Tensor> ModelPart::BackwardInput(int stage, int micro_batch,
                                                 const at::Tensor& gradient) {
  // No second half follows where every weight is frozen.
  if (!plan_.graph().stages[static_cast<size_t>(stage)].needs_weight_gradient) {
    return Backward(stage, micro_batch, gradient, /*last=*/false);
  }
  return InputGradients(stage, micro_batch,
                        stages_.at(stage)->BackwardInput(micro_batch, gradient));
}

void ModelPart::BackwardWeights(int stage, int micro_batch, bool last) {
  telling_ready_ = last ? stage : -1;
  stages_.at(stage)->BackwardWeights(micro_batch);
  telling_ready_ = -1;
}

// `input`: the gradient of the stage's input, undefined where nothing has flowed back.
std::vector<at::Tensor> ModelPart::InputGradients(int stage, int micro_batch, at::Tensor input) {
  ReleaseAfter(stage, micro_batch, /*forward=*/false);
  const LayerLoad& load = pass_.loads[static_cast<size_t>(micro_batch)];
  std::vector<std::vector<int64_t>> shapes;
  for (const int from : plan_.graph().Previous(stage)) {
    if (pass_.schedule->work.Sends(from, micro_batch))
      shapes.push_back(plan_.BoundaryShape(from, load));
  }
  // Tokens without a target: nothing flows back, and the stages before wait for it.
  if (!input.defined()) {
    std::vector<at::Tensor> zeros;
    zeros.reserve(shapes.size());
    for (const auto& shape : shapes) zeros.push_back(at::zeros(shape, ActivationOptions()));
    return zeros;
  }
  return SplitRows(input, shapes);
}

at::Tensor ModelPart::EmptyBoundary(int from, int micro_batch) {
  return at::empty(plan_.BoundaryShape(from, pass_.loads[static_cast<size_t>(micro_batch)]),
                   ActivationOptions());
}

void ModelPart::Reduce(int stage) {
  if (on_stage_ready && !pass_.evaluate) on_stage_ready(stages_.at(stage)->parameters());
}

void ModelPart::FinishReduction() {
  if (on_all_ready && !pass_.evaluate) on_all_ready();
}

}  // namespace equipoise
