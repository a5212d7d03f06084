#include "models/ops/record.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "configs/base/error.h"

namespace equipoise::ops {

namespace {

thread_local SavedActivations* collecting = nullptr;
thread_local bool recomputes_elementwise = false;

torch::autograd::Edge EdgeTo(const at::Tensor& input) {
  return input.defined() && input.requires_grad() ? torch::autograd::impl::gradient_edge(input)
                                                  : torch::autograd::Edge();
}

}  // namespace

SavedActivations::SavedActivations() {
  EQUIPOISE_CHECK(collecting == nullptr, "saved activations are collected already");
  collecting = this;
}

SavedActivations::~SavedActivations() { collecting = nullptr; }

std::vector<at::Tensor> SavedActivations::All() const {
  std::vector<at::Tensor> all;
  for (const std::shared_ptr<SavingNode>& node : nodes_) {
    node->ForEachSaved([&all](at::Tensor& saved) {
      if (saved.defined()) all.push_back(saved);
    });
  }
  return all;
}

void Noted(const std::shared_ptr<torch::autograd::Node>& node) {
  if (collecting == nullptr) return;
  if (auto saving = std::dynamic_pointer_cast<SavingNode>(node))
    collecting->nodes_.push_back(std::move(saving));
}

RecomputeElementwise::RecomputeElementwise(bool on)
    : before_(std::exchange(recomputes_elementwise, on)) {}

RecomputeElementwise::~RecomputeElementwise() { recomputes_elementwise = before_; }

std::shared_ptr<ElementwiseNode> KeptInPlaceOf(const at::Tensor& x) {
  if (!recomputes_elementwise || !NeedsGradient(x)) return nullptr;
  std::shared_ptr<torch::autograd::Node> node = x.grad_fn();
  while (dynamic_cast<PassingNode*>(node.get()) != nullptr) node = node->next_edge(0).function;
  return std::dynamic_pointer_cast<ElementwiseNode>(node);
}

bool NeedsGradient(const at::Tensor& input) {
  return at::GradMode::is_enabled() && input.defined() && input.requires_grad();
}

bool NeedsNode(std::initializer_list<const at::Tensor*> inputs,
               std::initializer_list<const Parameter*> weights) {
  if (!at::GradMode::is_enabled()) return false;
  for (const at::Tensor* input : inputs) {
    if (NeedsGradient(*input)) return true;
  }
  for (const Parameter* weight : weights) {
    if (weight != nullptr && weight->trainable) return true;
  }
  return false;
}

void Record(const at::Tensor& output, const std::shared_ptr<torch::autograd::Node>& node,
            std::initializer_list<const at::Tensor*> inputs) {
  torch::autograd::edge_list edges;
  edges.reserve(inputs.size());
  for (const at::Tensor* input : inputs) edges.push_back(EdgeTo(*input));
  node->set_next_edges(std::move(edges));
  torch::autograd::set_history(output, node);
  Noted(node);
}

void Record(const std::vector<at::Tensor>& outputs,
            const std::shared_ptr<torch::autograd::Node>& node,
            const std::vector<at::Tensor>& inputs) {
  torch::autograd::edge_list edges;
  edges.reserve(inputs.size());
  for (const at::Tensor& input : inputs) edges.push_back(EdgeTo(input));
  node->set_next_edges(std::move(edges));
  torch::autograd::set_history(outputs, node);
  Noted(node);
}

}  // namespace equipoise::ops
