#include "models/ops/rotary.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include "models/ops/record.h"
#include "models/ops/row_dispatch.h"
#include "parallel/kernels/own_operator.h"

namespace equipoise::ops {
namespace {

// Rotated() by LibTorch's operations, for tensors that are not on the CPU, where there are no own
// kernels: three kernels, which compute in fp32 and round once.
at::Tensor RotatedOnDevice(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                           float direction) {
  at::Tensor y = at::empty(x.sizes(), x.options());
  const auto halves = [&](const at::Tensor& t) {  // [tokens, heads, 2, n]
    return t.view({t.size(0), -1, 2, cos.size(1)});
  };
  const at::Tensor c = cos.unsqueeze(1).unsqueeze(1), s = sin.unsqueeze(1);
  const at::Tensor from = halves(x), product = at::mul(from, c), to = halves(y);
  at::Tensor first = to.select(2, 0), second = to.select(2, 1);
  at::addcmul_out(first, product.select(2, 0), from.select(2, 1), s, -direction);
  at::addcmul_out(second, product.select(2, 1), from.select(2, 0), s, direction);
  return y;
}

at::Tensor Rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                   float direction) {
  static const OwnOperator<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                      double)>
      own("equipoise::rotary");
  if (own.IsFor(x)) return own(x, cos, sin, direction);
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

// Rotated() of each head's first elements. The kernels turn whole heads, so that these are set
// apart and put together again.
at::Tensor RotatedPart(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                       int64_t head_dim, float direction) {
  const int64_t turned = 2 * cos.size(1), rows = x.size(0), heads = x.size(1) / head_dim;
  if (turned == head_dim) return Rotated(x, cos, sin, direction);
  const at::Tensor whole = x.reshape({rows, heads, head_dim});
  const at::Tensor first = whole.narrow(2, 0, turned).reshape({rows, heads * turned});
  const at::Tensor rotated = Rotated(first, cos, sin, direction).view({rows, heads, turned});
  const at::Tensor rest = whole.narrow(2, turned, head_dim - turned);
  return at::cat({rotated, rest}, 2).view({rows, heads * head_dim});
}

struct RotaryNode : torch::autograd::Node {
  at::Tensor cos, sin;
  int64_t head_dim = 0;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return {RotatedPart(gradients[0], cos, sin, head_dim, /*direction=*/-1)};
  }
  void release_variables() override {
    cos.reset();
    sin.reset();
  }
  std::string name() const override { return "Rotary"; }
};

}  // namespace

at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                  int64_t head_dim) {
  const bool needs_node = NeedsNode({&x}, {});
  const BelowAutograd guard;
  at::Tensor y = RotatedPart(x, cos, sin, head_dim, /*direction=*/1);
  if (!needs_node) return y;
  auto node = std::make_shared<RotaryNode>();
  node->cos = cos;
  node->sin = sin;
  node->head_dim = head_dim;
  Record(y, node, {&x});
  return y;
}

}  // namespace equipoise::ops
