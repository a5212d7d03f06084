#include "models/ops/rotary.h"

#include <ATen/ops/empty.h>

#include "models/ops/record.h"
#include "models/ops/row_dispatch.h"

namespace equipoise::ops {
namespace {

// Rotated() by LibTorch's operations, for tensors that are not on the CPU.
at::Tensor RotatedOnDevice(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                           float direction) {
  at::Tensor y = at::empty(x.sizes(), x.options());
  const auto half = [&](const at::Tensor& t, int64_t i) {  // [tokens, heads, n]
    return t.view({t.size(0), -1, 2, cos.size(1)}).select(2, i);
  };
  const at::Tensor a = half(x, 0).to(at::kFloat), b = half(x, 1).to(at::kFloat);
  const at::Tensor c = cos.unsqueeze(1), s = sin.mul(direction).unsqueeze(1);
  half(y, 0).copy_(a.mul(c).sub_(b.mul(s)));
  half(y, 1).copy_(b.mul(c).add_(a.mul(s)));
  return y;
}

at::Tensor Rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                   float direction) {
  const at::Tensor input = x.stride(1) == 1 ? x : x.contiguous();
  if (!x.is_cpu()) return RotatedOnDevice(input, cos, sin, direction);
  at::Tensor y = at::empty(x.sizes(), x.options());
  const Rotation rotation = {cos.const_data_ptr<float>(), sin.const_data_ptr<float>(), cos.size(1),
                             direction};
  OnRows(input, [&](auto type, const Rows& rows) {
    using T = decltype(type);
    RotateRows(rows, rotation, Data<T>(input), MutableData<T>(y));
  });
  return y;
}

struct RotaryNode : torch::autograd::Node {
  at::Tensor cos, sin;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return {Rotated(gradients[0], cos, sin, /*direction=*/-1)};
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
  at::Tensor y = Rotated(x, cos, sin, /*direction=*/1);
  if (!needs_node) return y;
  auto node = std::make_shared<RotaryNode>();
  node->cos = cos;
  node->sin = sin;
  Record(y, node, {&x});
  return y;
}

}  // namespace equipoise::ops
