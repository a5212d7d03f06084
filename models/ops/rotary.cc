#include "models/ops/rotary.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>

#include "models/ops/record.h"

namespace equipoise::ops {
namespace {

at::Tensor Rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t tokens = x.size(0), half = cos.size(1), heads = x.size(1) / (2 * half);
  const at::Tensor pairs = x.view({tokens, heads, 2, half}).to(at::kFloat);
  const at::Tensor a = pairs.select(2, 0), b = pairs.select(2, 1);
  const at::Tensor c = cos.unsqueeze(1), s = sin.unsqueeze(1);
  at::Tensor y = at::empty({tokens, heads, 2, half}, x.options());
  y.select(2, 0).copy_(a.mul(c).addcmul_(b, s, -1));
  y.select(2, 1).copy_(b.mul(c).addcmul_(a, s));
  return y.view({tokens, -1});
}

struct RotaryNode : torch::autograd::Node {
  at::Tensor cos, sin;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return {Rotated(gradients[0], cos, sin.neg())};  // a rotation's transpose turns it back
  }
  void release_variables() override {
    cos.reset();
    sin.reset();
  }
  std::string name() const override { return "Rotary"; }
};

}  // namespace

at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const bool needs_node = NeedsNode({&x}, {});
  const BelowAutograd guard;
  at::Tensor y = Rotated(x, cos, sin);
  if (!needs_node) return y;
  auto node = std::make_shared<RotaryNode>();
  node->cos = cos;
  node->sin = sin;
  Record(y, node, {&x});
  return y;
}

}  // namespace equipoise::ops
