#include "models/ops/interpolated_positions.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/mul.h>

#include <memory>

#include "models/ops/record.h"

namespace equipoise::ops {
namespace {

struct InterpolatedNode : torch::autograd::Node {
  Parameter* table = nullptr;
  Interpolation rows;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor& g = gradients[0];
    if (table->trainable) {
      const at::Tensor whole = g.to(at::kFloat);
      for (int64_t i = 0; i < rows.corners.size(0); ++i) {
        table->gradient.index_add_(0, rows.corners[i], whole.mul(rows.weights[i].unsqueeze(1)));
      }
    }
    return {task_should_compute_output(0) ? g : at::Tensor()};
  }
  void release_variables() override { rows = {}; }
  std::string name() const override { return "Interpolated(" + table->name + ")"; }
};

}  // namespace

at::Tensor AddInterpolated(const at::Tensor& x, const Interpolation& rows, Parameter& table) {
  const bool needs_node = NeedsNode({&x}, {&table});
  const BelowAutograd guard;
  at::Tensor sum;
  for (int64_t i = 0; i < rows.corners.size(0); ++i) {
    const at::Tensor part = table.value.index_select(0, rows.corners[i])
                                .to(at::kFloat)
                                .mul(rows.weights[i].unsqueeze(1));
    sum = i == 0 ? part : sum.add_(part);
  }
  at::Tensor y = x.add(sum.to(x.scalar_type()));
  if (!needs_node) return y;
  auto node = std::make_shared<InterpolatedNode>();
  node->table = &table;
  node->rows = rows;
  Record(y, node, {&x});
  return y;
}

}  // namespace equipoise::ops
