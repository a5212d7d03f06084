#include "models/ops/split_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

#include "models/ops/record.h"

namespace equipoise::ops {
namespace {

// Sums over the last dimension, on this rank and all others of the group: [xs, rows] fp32.
at::Tensor RowSums(const std::vector<at::Tensor>& xs, Communicator* group) {
  at::Tensor sums =
      at::empty({static_cast<int64_t>(xs.size()), xs[0].numel() / xs[0].size(-1)}, xs[0].options());
  for (size_t i = 0; i < xs.size(); ++i) {
    sums.select(0, static_cast<int64_t>(i)).copy_(xs[i].sum(-1).view({-1}));
  }
  if (group != nullptr) group->AllReduce(sums, ReduceOp::kSum).WaitOnStream();
  return sums;
}

// Size of the vectors that are normalized, over all ranks.
double WholeSize(const Parameter& weight) { return static_cast<double>(weight.whole_shape()[0]); }

struct TensorParallelRmsNormNode : SavingNode {
  std::vector<Parameter*> weights;
  std::vector<at::Tensor> xs;  // [rows, size]
  at::Tensor rstd;             // [xs, rows] fp32
  std::vector<int64_t> input_shape;
  Communicator* group = nullptr;
  Communicator* weight_group = nullptr;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    std::vector<at::Tensor> scaled, along;  // g * weight; that times x
    for (size_t i = 0; i < xs.size(); ++i) {
      const at::Tensor g = gradients[i].reshape(xs[i].sizes()).to(at::kFloat);
      const at::Tensor x = xs[i].to(at::kFloat);
      if (weights[i]->trainable) {
        at::Tensor sum = g.mul(x).mul_(Scale(i)).sum(0);
        if (weight_group != nullptr) weight_group->AllReduce(sum, ReduceOp::kSum).WaitOnStream();
        weights[i]->AddGradient(sum);
      }
      scaled.push_back(g.mul(weights[i]->value));
      along.push_back(scaled[i].mul(x));
    }
    if (!task_should_compute_output(0)) return torch::autograd::variable_list(xs.size());
    const double size = WholeSize(*weights[0]);
    const at::Tensor sums = RowSums(along, group).mul_(rstd.square()).div_(size);
    torch::autograd::variable_list results;
    for (size_t i = 0; i < xs.size(); ++i) {
      const at::Tensor sum = sums.select(0, static_cast<int64_t>(i)).unsqueeze(1);
      const at::Tensor gx = scaled[i].sub_(xs[i].to(at::kFloat).mul_(sum)).mul_(Scale(i));
      results.push_back(gx.to(xs[i].scalar_type()).view(input_shape));
    }
    return results;
  }
  void ForEachSaved(const Visit& visit) override {
    for (at::Tensor& x : xs) visit(x);
    visit(rstd);
  }
  std::string name() const override { return "TensorParallelRmsNorm(" + weights[0]->name + ")"; }

 private:
  at::Tensor Scale(size_t i) const { return rstd.select(0, static_cast<int64_t>(i)).unsqueeze(1); }
};

}  // namespace

std::vector<at::Tensor> TensorParallelRmsNorm(const std::vector<at::Tensor>& xs,
                                              const std::vector<Parameter*>& weights, double eps,
                                              Communicator* group, Communicator* weight_group) {
  std::vector<at::Tensor> ys;
  bool needs_node = false;
  for (size_t i = 0; i < xs.size(); ++i) {
    needs_node = needs_node || NeedsNode({&xs[i]}, {weights[i]});
  }
  const BelowAutograd guard;
  std::vector<at::Tensor> inputs, wide;
  for (const at::Tensor& x : xs) {
    inputs.push_back(x.detach().reshape({-1, x.size(-1)}));
    wide.push_back(inputs.back().to(at::kFloat));
  }
  std::vector<at::Tensor> squares;
  squares.reserve(wide.size());
  for (const at::Tensor& x : wide) squares.push_back(x.square());
  const double size = WholeSize(*weights[0]);
  const at::Tensor rstd = RowSums(squares, group).div_(size).add_(eps).rsqrt_();
  for (size_t i = 0; i < xs.size(); ++i) {
    const at::Tensor scale = rstd.select(0, static_cast<int64_t>(i)).unsqueeze(1);
    const at::Tensor normal = wide[i].mul(scale).to(xs[i].scalar_type());
    ys.push_back(normal.mul_(weights[i]->value).view(xs[i].sizes()));
  }
  if (!needs_node) return ys;
  auto node = std::make_shared<TensorParallelRmsNormNode>();
  node->weights = weights;
  node->xs = inputs;
  node->rstd = rstd;
  node->input_shape = xs[0].sizes().vec();
  node->group = group;
  node->weight_group = weight_group;
  Record(ys, node, xs);
  return ys;
}

}  // namespace equipoise::ops
