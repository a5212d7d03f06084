#include "models/ops/lora.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros_like.h>

#include <memory>

#include "models/ops/gradient_sums.h"
#include "models/ops/matrix_product.h"
#include "models/ops/record.h"

// y += s u B'. Backward: y's gradient passes through, u's is s g B, B's s g' u: of the rows, u
// alone is saved, times s. As in linear.cc the gradient of B is computed at once or, while
// Parameter::deferred is set, later.

namespace equipoise::ops {
namespace {

at::Tensor Rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

struct LowRankNode : SavingNode {
  std::vector<LowRankPart> parts;
  double scale = 1;
  at::Tensor scaled;  // s u [rows, sum of ranks]
  std::vector<int64_t> shape;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor g = Rows(gradients[0]);
    const auto add_gradients = [g, scaled = scaled, parts = parts] {
      int64_t rank = 0;
      for (const LowRankPart& part : parts) {
        const int64_t width = part.b->shape[0], r = part.b->shape[1];
        if (part.b->trainable) {
          AddProduct(part.b->gradient, g.narrow(1, part.begin, width), scaled.narrow(1, rank, r));
        }
        rank += r;
      }
    };
    if (DeferredGradients* later = parts[0].b->deferred) {
      later->emplace_back(add_gradients);
    } else {
      add_gradients();
    }
    if (!task_should_compute_output(1)) return {gradients[0], at::Tensor()};
    const at::Tensor gradient = at::empty_like(scaled);
    int64_t rank = 0;
    for (const LowRankPart& part : parts) {
      const int64_t width = part.b->shape[0], r = part.b->shape[1];
      at::Tensor of_part = gradient.narrow(1, rank, r);
      MatrixProductInto(of_part, g.narrow(1, part.begin, width), part.b->value);
      rank += r;
    }
    return {gradients[0], gradient.mul_(scale).view(shape)};
  }
  void ForEachSaved(const Visit& visit) override { visit(scaled); }
  std::string name() const override { return "LowRank(" + parts[0].b->name + ")"; }
};

struct PassNode : PassingNode {
  bool passes = true;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return {passes ? gradients[0] : at::zeros_like(gradients[0])};
  }
  std::string name() const override { return "PassGradientIf"; }
};

}  // namespace

at::Tensor AddLowRank(const at::Tensor& y, const at::Tensor& u,
                      const std::vector<LowRankPart>& parts, double scale) {
  bool needs_node = NeedsNode({&y, &u}, {});
  for (const LowRankPart& part : parts) needs_node = needs_node || NeedsNode({}, {part.b});
  const BelowAutograd guard;
  at::Tensor result = y.detach();
  const at::Tensor rows = result.view({-1, result.size(-1)});
  const at::Tensor scaled = at::mul(Rows(u), scale);
  int64_t rank = 0;
  for (const LowRankPart& part : parts) {
    const int64_t width = part.b->shape[0], r = part.b->shape[1];
    at::Tensor columns = rows.narrow(1, part.begin, width);
    AddMatrixProduct(columns, scaled.narrow(1, rank, r), part.b->value.t());
    rank += r;
  }
  if (!needs_node) return result;
  auto node = std::make_shared<LowRankNode>();
  node->parts = parts;
  node->scale = scale;
  node->scaled = scaled;
  node->shape = u.sizes().vec();
  Record(result, node, {&y, &u});
  return result;
}

at::Tensor PassGradientIf(bool passes, const at::Tensor& u) {
  if (!NeedsGradient(u)) return u;
  const BelowAutograd guard;
  at::Tensor result = u.detach();
  auto node = std::make_shared<PassNode>();
  node->passes = passes;
  Record(result, node, {&u});
  return result;
}

}  // namespace equipoise::ops
