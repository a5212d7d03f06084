#include "models/ops/activation.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <optional>

#include "models/ops/gradient_sums.h"
#include "models/ops/record.h"
#include "models/ops/row_dispatch.h"
#include "parallel/kernels/own_operator.h"

namespace equipoise::ops {
namespace {

// Gated() and GatedGradient() of 16 bits on the CPU, in one pass.
at::Tensor GatedOnCpu(const at::Tensor& gate_up) {
  const at::Tensor from = ContiguousRows(gate_up);
  const int64_t n = from.size(1) / 2;
  std::vector<int64_t> shape = gate_up.sizes().vec();
  shape.back() = n;
  at::Tensor y = at::empty(shape, gate_up.options());
  ForRows(from.size(0), n, [&](int64_t begin, int64_t end) {
    On16Bits(from, [&](auto type) {
      using T = decltype(type);
      SwiGluRows({begin, end, n, 2 * n}, Data<T>(from), MutableData<T>(y));
    });
  });
  return y;
}

at::Tensor GatedGradientOnCpu(const at::Tensor& g, const at::Tensor& gate_up) {
  const at::Tensor from = ContiguousRows(gate_up), above = ContiguousRows(g);
  const int64_t n = above.size(1);
  at::Tensor result = at::empty(gate_up.sizes(), gate_up.options());
  ForRows(from.size(0), n, [&](int64_t begin, int64_t end) {
    On16Bits(from, [&](auto type) {
      using T = decltype(type);
      SwiGluGradientRows({begin, end, n, 2 * n}, Data<T>(above), Data<T>(from),
                         MutableData<T>(result));
    });
  });
  return result;
}

at::Tensor Gated(const at::Tensor& gate_up) {
  static const OwnOperator<at::Tensor(const at::Tensor&)> own("equipoise::swi_glu");
  if (own.IsFor(gate_up)) return own(gate_up);
  if (Has16Bits(gate_up)) return GatedOnCpu(gate_up);
  const int64_t n = gate_up.size(-1) / 2;
  return at::silu(gate_up.narrow(-1, 0, n)).mul_(gate_up.narrow(-1, n, n));
}

// The gradient of gate_up for the gradient g of Gated().
at::Tensor GatedGradient(const at::Tensor& g, const at::Tensor& gate_up) {
  static const OwnOperator<at::Tensor(const at::Tensor&, const at::Tensor&)> own(
      "equipoise::swi_glu_gradient");
  if (own.IsFor(gate_up)) return own(g, gate_up);
  if (Has16Bits(gate_up)) return GatedGradientOnCpu(g, gate_up);
  const int64_t n = gate_up.size(-1) / 2;
  const at::Tensor gate = gate_up.narrow(-1, 0, n), up = gate_up.narrow(-1, n, n);
  at::Tensor result = at::empty_like(gate_up);
  at::Tensor gate_gradient = result.narrow(-1, 0, n), up_gradient = result.narrow(-1, n, n);
  at::mul_out(up_gradient, g, at::silu(gate));
  at::silu_backward_out(gate_gradient, g.mul(up), gate);
  return result;
}

struct SwiGluNode : ElementwiseNode {
  at::Tensor gate_up;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return {GatedGradient(gradients[0], gate_up)};
  }
  at::Tensor ResultAgain() const override { return Gated(gate_up); }
  void ForEachSaved(const Visit& visit) override { visit(gate_up); }
  std::string name() const override { return "SwiGlu"; }
};

// Scaled() of 16 bits on the CPU.
at::Tensor ScaledOnCpu(const at::Tensor& base, const at::Tensor& x, const at::Tensor& scale) {
  const at::Tensor from = ContiguousRows(x);
  const at::Tensor added = base.defined() ? ContiguousRows(base) : base;
  at::Tensor y = at::empty(x.sizes(), x.options());
  ForRows(from.size(0), from.size(1), [&](int64_t begin, int64_t end) {
    On16Bits(from, [&](auto type) {
      using T = decltype(type);
      ScaleRows({begin, end, from.size(1), from.size(1)},
                added.defined() ? Data<T>(added) : nullptr, Data<T>(from), Data<T>(scale),
                MutableData<T>(y));
    });
  });
  return y;
}

// The sum over rows of g * x, both [rows, n] and of 16 bits on the CPU: fp32 [n].
at::Tensor SumOfProducts(const at::Tensor& g, const at::Tensor& x) {
  const at::Tensor above = g.contiguous(), from = x.contiguous();
  at::Tensor sum = at::zeros({g.size(1)}, at::kFloat);
  ForColumns(g.size(1), [&](int64_t first, int64_t last) {
    On16Bits(g, [&](auto type) {
      using T = decltype(type);
      AddProductsOfRows({0, g.size(0), g.size(1), g.size(1)}, Data<T>(above), Data<T>(from), first,
                        last, sum.mutable_data_ptr<float>());
    });
  });
  return sum;
}

// x * scale, + base where it is defined.
at::Tensor Scaled(const at::Tensor& base, const at::Tensor& x, const at::Tensor& scale) {
  using Given = std::optional<at::Tensor>;
  static const OwnOperator<at::Tensor(const Given&, const at::Tensor&, const at::Tensor&)> own(
      "equipoise::scaled");
  if (own.IsFor(x)) return own(base.defined() ? Given(base) : std::nullopt, x, scale);
  if (Has16Bits(x)) return ScaledOnCpu(base, x, scale);
  return base.defined() ? at::addcmul(base, x, scale) : at::mul(x, scale);
}

struct ScaledResidualNode : SavingNode {
  Parameter* scale = nullptr;
  at::Tensor x;  // undefined when the scale is frozen

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor& g = gradients[0];
    if (x.defined()) {
      const at::Tensor rows = g.reshape({-1, g.size(-1)});
      if (const auto sums = OwnColumnSums(rows, {x.reshape(rows.sizes()), {}, {}}, false)) {
        scale->AddGradient(sums->weighted);
      } else if (Has16Bits(g)) {
        scale->AddGradient(SumOfProducts(rows, x.reshape(rows.sizes())));
      } else {
        const at::Tensor product = g.mul(x).reshape(rows.sizes());
        scale->AddGradient(product.sum(0, /*keepdim=*/false, at::kFloat));
      }
    }
    return {g, task_should_compute_output(1) ? Scaled({}, g, scale->value) : at::Tensor()};
  }
  void ForEachSaved(const Visit& visit) override { visit(x); }
  std::string name() const override { return "ScaledResidual(" + scale->name + ")"; }
};

}  // namespace

at::Tensor SwiGlu(const at::Tensor& gate_up) {
  const bool needs_node = NeedsNode({&gate_up}, {});
  const BelowAutograd guard;
  at::Tensor y = Gated(gate_up);
  if (!needs_node) return y;
  auto node = std::make_shared<SwiGluNode>();
  node->gate_up = gate_up.detach();
  Record(y, node, {&gate_up});
  return y;
}

at::Tensor ScaledResidual(const at::Tensor& residual, const at::Tensor& x, Parameter& scale) {
  const bool needs_node = NeedsNode({&residual, &x}, {&scale});
  const BelowAutograd guard;
  at::Tensor y = Scaled(residual, x, scale.value);
  if (!needs_node) return y;
  auto node = std::make_shared<ScaledResidualNode>();
  node->scale = &scale;
  if (scale.trainable) node->x = x.detach();
  Record(y, node, {&residual, &x});
  return y;
}

}  // namespace equipoise::ops
