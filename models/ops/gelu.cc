#include "models/ops/gelu.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>

#include "configs/base/error.h"
#include "models/ops/record.h"
#include "models/ops/row_dispatch.h"

namespace equipoise::ops {
namespace {

constexpr double kSlope = 1.702;

const char* Approximation(GeluForm form) { return form == GeluForm::kTanh ? "tanh" : "none"; }

// Whether the exact form has a row kernel for x.
bool HasRows(const at::Tensor& x, GeluForm form) {
  return form == GeluForm::kExact && Has16Bits(x);
}

// Calls run(T(), first, last) for ranges of x's elements, one for each thread.
template <class Run>
void ForElements(const at::Tensor& x, const Run& run) {
  ForRows(x.numel(), 1, [&](int64_t first, int64_t last) {
    On16Bits(x, [&](auto type) { run(type, first, last); });
  });
}

at::Tensor Forward(const at::Tensor& x, GeluForm form) {
  if (form == GeluForm::kQuick) return at::sigmoid(x.mul(kSlope)).mul_(x);
  if (!HasRows(x, form)) return at::gelu(x, Approximation(form));
  const at::Tensor from = x.contiguous();
  at::Tensor y = at::empty(x.sizes(), x.options());
  ForElements(from, [&](auto type, int64_t first, int64_t last) {
    using T = decltype(type);
    GeluElements(last - first, Data<T>(from) + first, MutableData<T>(y) + first);
  });
  return y;
}

// With s = sigmoid(1.702 x): d/dx x s = s (1 + 1.702 x (1 - s)).
at::Tensor QuickGradient(const at::Tensor& g, const at::Tensor& x) {
  const at::Tensor s = at::sigmoid(x.mul(kSlope));
  at::Tensor slope = s.neg().add_(1).mul_(x).mul_(kSlope).add_(1);
  return slope.mul_(s).mul_(g);
}

at::Tensor Gradient(const at::Tensor& g, const at::Tensor& x, GeluForm form) {
  if (form == GeluForm::kQuick) return QuickGradient(g, x);
  if (!HasRows(x, form)) return at::gelu_backward(g, x, Approximation(form));
  const at::Tensor above = g.contiguous(), from = x.contiguous();
  at::Tensor gx = at::empty(x.sizes(), x.options());
  ForElements(from, [&](auto type, int64_t first, int64_t last) {
    using T = decltype(type);
    GeluGradientElements(last - first, Data<T>(above) + first, Data<T>(from) + first,
                         MutableData<T>(gx) + first);
  });
  return gx;
}

struct GeluNode : ElementwiseNode {
  at::Tensor x;
  GeluForm form = GeluForm::kExact;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return {Gradient(gradients[0], x, form)};
  }
  at::Tensor ResultAgain() const override { return Forward(x, form); }
  void ForEachSaved(const Visit& visit) override { visit(x); }
  std::string name() const override { return "Gelu"; }
};

}  // namespace

GeluForm GeluFormOf(const std::string& hidden_act) {
  if (hidden_act == "quick_gelu") return GeluForm::kQuick;
  if (hidden_act == "gelu_pytorch_tanh") return GeluForm::kTanh;
  EQUIPOISE_CHECK(hidden_act == "gelu", hidden_act);
  return GeluForm::kExact;
}

at::Tensor Gelu(const at::Tensor& x, GeluForm form) {
  const bool needs_node = NeedsNode({&x}, {});
  const BelowAutograd guard;
  at::Tensor y = Forward(x, form);
  if (!needs_node) return y;
  auto node = std::make_shared<GeluNode>();
  node->x = x.detach();
  node->form = form;
  Record(y, node, {&x});
  return y;
}

}  // namespace equipoise::ops
