#include "models/ops/cross_entropy.h"

#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>

#include "models/ops/record.h"

namespace equipoise::ops {
namespace {

// Logits that exist at a time: 64 MiB of fp32, but never so few rows that the products get slow.
constexpr int64_t kChunkLogits = int64_t{1} << 24;
constexpr int64_t kMinChunkRows = 128;

// What one pass over the rows makes beside the loss.
struct Gradients {
  bool of_x = false, of_weight = false, in_backward = false;
  at::Tensor x;       // [rows, hidden]
  at::Tensor weight;  // kept for backward; undefined where it was added at once
};

struct CrossEntropyNode : torch::autograd::Node {
  Parameter* weight = nullptr;
  at::Tensor x_gradient, weight_gradient;

  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    if (weight_gradient.defined()) weight->AddGradient(weight_gradient);
    return {x_gradient};
  }
  void release_variables() override {
    x_gradient.reset();
    weight_gradient.reset();
  }
  std::string name() const override { return "CrossEntropy(" + weight->name + ")"; }
};

void AddWeightGradient(const at::Tensor& g, const at::Tensor& x, Parameter& weight,
                       Gradients& gradients) {
  if (gradients.in_backward) {
    const at::Tensor product = at::mm(g.t(), x);
    // Several chunks are summed in fp32, a single one stays as it is.
    gradients.weight =
        gradients.weight.defined() ? gradients.weight.to(at::kFloat).add_(product) : product;
  } else if (g.scalar_type() == at::kFloat) {
    weight.gradient.addmm_(g.t(), x);
  } else {
    weight.AddGradient(at::mm(g.t(), x));
  }
}

// Rows [begin, begin + rows). Returns their weighted loss, fp64, without the scale.
at::Tensor Chunk(const at::Tensor& x, const Targets& targets, Parameter& weight,
                 Gradients& gradients, int64_t begin, int64_t rows) {
  const at::Tensor part = x.narrow(0, begin, rows);
  const at::Tensor ids = targets.ids.narrow(0, begin, rows).unsqueeze(1);
  at::Tensor log_p = at::_log_softmax(at::mm(part, weight.value.t()).to(at::kFloat), 1,
                                      /*half_to_float=*/false);
  at::Tensor losses = log_p.gather(1, ids).squeeze(1).to(at::kDouble).neg_();
  at::Tensor factors;
  if (targets.weights.defined()) {
    factors = targets.weights.narrow(0, begin, rows);
    losses.mul_(factors);
  }
  if (gradients.of_x || gradients.of_weight) {
    at::Tensor g = log_p.exp_();
    g.scatter_add_(1, ids, at::ones({rows, 1}, g.options()).neg_());
    if (factors.defined()) {
      g.mul_(factors.mul(targets.scale).unsqueeze(1));
    } else {
      g.mul_(targets.scale);
    }
    g = g.to(x.scalar_type());
    if (gradients.of_x) gradients.x.narrow(0, begin, rows).copy_(at::mm(g, weight.value));
    if (gradients.of_weight) AddWeightGradient(g, part, weight, gradients);
  }
  return losses.sum();
}

}  // namespace

at::Tensor LinearCrossEntropy(const at::Tensor& x, const Targets& targets, Parameter& weight,
                              bool in_backward) {
  const bool needs_node = NeedsNode({&x}, {&weight});
  Gradients gradients;
  gradients.of_x = NeedsGradient(x);
  gradients.of_weight = needs_node && weight.trainable;
  gradients.in_backward = in_backward;
  const BelowAutograd guard;
  if (gradients.of_x) gradients.x = at::empty_like(x);

  const int64_t rows = x.size(0);
  const int64_t step = std::max(kMinChunkRows, kChunkLogits / weight.shape[0]);
  at::Tensor loss = at::scalar_tensor(0.0, at::kDouble);
  for (int64_t begin = 0; begin < rows; begin += step) {
    loss.add_(Chunk(x, targets, weight, gradients, begin, std::min(step, rows - begin)));
  }
  loss.mul_(targets.scale);
  if (!needs_node) return loss;

  auto node = std::make_shared<CrossEntropyNode>();
  node->weight = &weight;
  node->x_gradient = gradients.x;
  node->weight_gradient = gradients.weight;
  Record(loss, node, {&x});
  return loss;
}

}  // namespace equipoise::ops
