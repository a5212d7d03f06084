#include "models/model_part.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <utility>

#include "configs/error.h"
#include "models/model.h"
#include "models/modules.h"

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

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

ModelPart::ModelPart(const ModelConfig& config, StagePlan plan, int pipeline_rank,
                     const Options& options)
    : config_(config), plan_(std::move(plan)), dtype_(options.dtype) {
  CheckModules(config, options.freeze, "model.freeze");
  const std::vector<int>& begins = plan_.plan().stage_begins;
  const std::vector<Recompute>& recompute = plan_.plan().recompute;
  EQUIPOISE_CHECK(recompute.empty() || recompute.size() == plan_.specs().size(), "recompute of ",
                  recompute.size(), " layers");
  for (const int number : plan_.graph().StagesOf(pipeline_rank)) {
    const auto s = static_cast<size_t>(number);
    auto layers = BuildLayers(config, {begins[s], begins[s + 1]}, options.tensor);
    Freeze(layers, options.freeze);
    for (size_t i = 0; i < layers.size(); ++i) {
      for (Parameter* p : layers[i]->parameters())
        p->trainable = p->trainable && !options.inference;
      if (!recompute.empty()) layers[i]->recompute = recompute[static_cast<size_t>(begins[s]) + i];
    }
    auto stage = std::make_unique<Stage>(std::move(layers));
    stage->on_layer_backward = [this, number, made = stage.get()](int, size_t layer) {
      if (telling_ready_ == number && on_layer_ready)
        on_layer_ready(made->layers()[layer]->parameters());
    };
    stages_[number] = std::move(stage);
  }
  parameters_ = std::make_unique<FlatParameters>(InOrder(stages_, tied_copies()), options.dtype,
                                                 options.shards);
}

std::vector<Parameter*> ModelPart::tied_copies() const {
  if (!config_.text.tie_word_embeddings) return {};
  std::vector<Parameter*> copies;
  for (const auto& [number, stage] : stages_) {
    const bool last = number + 1 == plan_.plan().num_stages();
    const std::vector<Parameter*> parameters = stage->parameters();
    for (Parameter* parameter : parameters) {
      if (!EndsWith(parameter->name, "embed_tokens.weight")) continue;
      // Both ends in one stage share the weight.
      if (!last || !parameter->part.owner) copies.push_back(parameter);
    }
  }
  return copies;
}

int64_t ModelPart::element_bytes() const { return static_cast<int64_t>(c10::elementSize(dtype_)); }

void ModelPart::Begin(Pass pass) {
  pass_ = std::move(pass);
  loss_ = 0;
  last_in_backward_ = false;
  last_user_ = stages_.rbegin()->first;
  for (const auto& [number, stage] : stages_) {
    if (pass_.evaluate || last_in_backward_ || !plan_.graph().HasBackward(number)) continue;
    last_in_backward_ = true;
    last_user_ = number;
  }
}

at::Tensor ModelPart::Forward(int stage, int micro_batch, const std::vector<at::Tensor>& inputs) {
  EQUIPOISE_CHECK(inputs.size() <= 1, "stage ", stage, " takes one input");
  const MicroBatch& batch = pass_.batch(micro_batch);
  Stage& part = *stages_.at(stage);
  const at::Tensor input = inputs.empty() ? at::Tensor() : inputs.front();
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
  if (has_result && result.defined() && result.dim() == 0) loss_ += result.item<double>();
  if (pass_.release && !last_in_backward_ && stage == last_user_) pass_.release(micro_batch);
  return has_result ? at::Tensor() : result;
}

std::vector<at::Tensor> ModelPart::Backward(int stage, int micro_batch, const at::Tensor& gradient,
                                            bool last) {
  telling_ready_ = last ? stage : -1;
  at::Tensor input = stages_.at(stage)->Backward(micro_batch, gradient);
  telling_ready_ = -1;
  if (pass_.release && last_in_backward_ && stage == last_user_) pass_.release(micro_batch);
  const LayerLoad& load = pass_.loads[static_cast<size_t>(micro_batch)];
  if (stage == 0 || !plan_.Sends(stage - 1, load)) return {};
  // Tokens without a target: nothing flows back, and the stage before waits for it.
  if (!input.defined()) input = at::zeros(plan_.BoundaryShape(stage - 1, load), dtype_);
  return {std::move(input)};
}

at::Tensor ModelPart::EmptyBoundary(int from, int micro_batch) {
  return at::empty(plan_.BoundaryShape(from, pass_.loads[static_cast<size_t>(micro_batch)]),
                   dtype_);
}

void ModelPart::Reduce(int stage) {
  if (on_stage_ready && !pass_.evaluate) on_stage_ready(stages_.at(stage)->parameters());
}

void ModelPart::FinishReduction() {
  if (on_all_ready && !pass_.evaluate) on_all_ready();
}

}  // namespace equipoise
