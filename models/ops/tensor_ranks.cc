#include "models/ops/tensor_ranks.h"

#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <functional>
#include <utility>

#include "configs/base/error.h"
#include "models/ops/record.h"

namespace equipoise::ops {
namespace {

struct AllReduceBackwardNode : PassingNode {
  Communicator* group = nullptr;
  BesideSum beside;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    at::Tensor g = gradients[0].contiguous();
    Work sum = group->AllReduce(g, ReduceOp::kSum);
    RunBeside(beside);
    sum.WaitOnStream();
    return {g};
  }
  std::string name() const override { return "AllReduceBackward"; }
};

struct AllReduceForwardNode : torch::autograd::Node {
  Parameter* bias = nullptr;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor& g = gradients[0];
    if (bias != nullptr && bias->trainable) {
      bias->AddGradient(g.reshape({-1, g.size(-1)}).sum(0, /*keepdim=*/false, at::kFloat));
    }
    return {g};
  }
  std::string name() const override { return "AllReduceForward"; }
};

struct SumGradientOfPartNode : torch::autograd::Node {
  Communicator* group = nullptr;
  int part = 0, parts = 1;

  // One sum for all parts: the ranks have one group, and none for the holders of a part.
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor& g = gradients[0];
    std::vector<int64_t> shape = g.sizes().vec();
    shape.insert(shape.begin(), parts);
    at::Tensor all = at::zeros(shape, g.options());
    all.select(0, part).copy_(g);
    group->AllReduce(all, ReduceOp::kSum).WaitOnStream();
    return {all.select(0, part)};
  }
  std::string name() const override { return "SumGradientOfPart"; }
};

}  // namespace

void RunBeside(const BesideSum& beside) {
  if (beside == nullptr) return;
  for (const std::function<void()>& add : std::exchange(*beside, {})) add();
}

at::Tensor AllReduceBackward(const at::Tensor& x, Communicator& group, const BesideSum& beside) {
  if (!NeedsGradient(x)) return x;
  const BelowAutograd guard;
  at::Tensor y = x.detach();
  auto node = std::make_shared<AllReduceBackwardNode>();
  node->group = &group;
  node->beside = beside;
  Record(y, node, {&x});
  return y;
}

at::Tensor AllReduceForward(const at::Tensor& x, Parameter* bias, Communicator& group) {
  EQUIPOISE_CHECK(x.is_contiguous(), "sizes ", x.sizes(), ", strides ", x.strides());
  const bool needs_node = NeedsNode({&x}, {bias});
  const BelowAutograd guard;
  at::Tensor y = x.detach();
  group.AllReduce(y, ReduceOp::kSum).WaitOnStream();
  if (bias != nullptr) y.add_(bias->value);
  if (!needs_node) return y;
  auto node = std::make_shared<AllReduceForwardNode>();
  node->bias = bias;
  Record(y, node, {&x});
  return y;
}

at::Tensor SumGradientOfPart(const at::Tensor& x, int part, int parts, Communicator& group) {
  if (!NeedsGradient(x)) return x;
  const BelowAutograd guard;
  at::Tensor y = x.detach();
  auto node = std::make_shared<SumGradientOfPartNode>();
  node->group = &group;
  node->part = part;
  node->parts = parts;
  Record(y, node, {&x});
  return y;
}

}  // namespace equipoise::ops
