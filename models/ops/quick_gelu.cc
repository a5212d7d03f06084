#include "models/ops/quick_gelu.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>

#include "models/ops/record.h"

namespace equipoise::ops {
namespace {

constexpr double kSlope = 1.702;

struct QuickGeluNode : SavingNode {
  at::Tensor x;

  // With s = sigmoid(1.702 x): d/dx x s = s (1 + 1.702 x (1 - s)).
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor s = at::sigmoid(x.mul(kSlope));
    at::Tensor slope = s.neg().add_(1).mul_(x).mul_(kSlope).add_(1);
    return {slope.mul_(s).mul_(gradients[0])};
  }
  void ForEachSaved(const Visit& visit) override { visit(x); }
  std::string name() const override { return "QuickGelu"; }
};

}  // namespace

at::Tensor QuickGelu(const at::Tensor& x) {
  const bool needs_node = NeedsNode({&x}, {});
  const BelowAutograd guard;
  at::Tensor y = at::sigmoid(x.mul(kSlope)).mul_(x);
  if (!needs_node) return y;
  auto node = std::make_shared<QuickGeluNode>();
  node->x = x.detach();
  Record(y, node, {&x});
  return y;
}

}  // namespace equipoise::ops
