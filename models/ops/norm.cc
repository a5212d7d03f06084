#include "models/ops/norm.h"

#include <ATen/ops/mean.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>

#include <array>
#include <tuple>

#include "models/ops/record.h"

namespace equipoise::ops {
namespace {

struct LayerNormNode : torch::autograd::Node {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;
  at::Tensor x, mean, rstd;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const std::array<bool, 3> wanted = {task_should_compute_output(0), weight->trainable,
                                        bias->trainable};
    auto [gx, gw, gb] =
        at::native_layer_norm_backward(gradients[0].contiguous(), x, {x.size(-1)}, mean, rstd,
                                       weight->value, bias->value, wanted);
    if (weight->trainable) weight->AddGradient(gw);
    if (bias->trainable) bias->AddGradient(gb);
    return {gx};
  }
  void release_variables() override {
    x.reset();
    mean.reset();
    rstd.reset();
  }
  std::string name() const override { return "LayerNorm(" + weight->name + ")"; }
};

struct RmsNormNode : torch::autograd::Node {
  Parameter* weight = nullptr;
  at::Tensor x, rstd;  // rstd [..., 1] fp32

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor g = gradients[0].to(at::kFloat);
    const at::Tensor normal = x.to(at::kFloat).mul_(rstd);
    if (weight->trainable) {
      weight->AddGradient(g.mul(normal).reshape({-1, x.size(-1)}).sum(0));
    }
    if (!task_should_compute_output(0)) return {at::Tensor()};
    at::Tensor gx = g.mul(weight->value);
    const at::Tensor along = gx.mul(normal).mean(-1, /*keepdim=*/true);
    return {gx.sub_(normal.mul(along)).mul_(rstd).to(x.scalar_type())};
  }
  void release_variables() override {
    x.reset();
    rstd.reset();
  }
  std::string name() const override { return "RmsNorm(" + weight->name + ")"; }
};

}  // namespace

at::Tensor LayerNorm(const at::Tensor& x, Parameter& weight, Parameter& bias, double eps) {
  const bool needs_node = NeedsNode({&x}, {&weight, &bias});
  const BelowAutograd guard;
  const at::Tensor input = x.contiguous();
  auto [y, mean, rstd] =
      at::native_layer_norm(input, {x.size(-1)}, weight.value, bias.value, eps);
  if (!needs_node) return y;
  auto node = std::make_shared<LayerNormNode>();
  node->weight = &weight;
  node->bias = &bias;
  node->x = input;
  node->mean = mean;
  node->rstd = rstd;
  Record(y, node, {&x});
  return y;
}

at::Tensor RmsNorm(const at::Tensor& x, Parameter& weight, double eps) {
  const bool needs_node = NeedsNode({&x}, {&weight});
  const BelowAutograd guard;
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor rstd =
      wide.square().mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
  at::Tensor y = wide.mul(rstd).to(x.scalar_type()).mul_(weight.value);
  if (!needs_node) return y;
  auto node = std::make_shared<RmsNormNode>();
  node->weight = &weight;
  node->x = x.detach();
  node->rstd = rstd;
  Record(y, node, {&x});
  return y;
}

}  // namespace equipoise::ops
