#include "models/ops/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/mul.h>
#include <xxhash.h>

#include <cmath>
#include <memory>
#include <vector>

#include "configs/base/error.h"
#include "models/ops/kernels/dropout_launch.h"
#include "models/ops/record.h"
#include "parallel/device.h"
#include "parallel/kernels/own_operator.h"
#include "parallel/random_bits.h"

namespace equipoise::ops {
namespace {

constexpr int64_t kLow32 = 0xffffffff;

// Factors of the elements of x [rows, n], 0 or 1 / (1 - p), by LibTorch: 24 bytes an element.
at::Tensor Factors(const at::Tensor& x, const DropoutMask& mask) {
  const at::TensorOptions whole = x.options().dtype(at::kLong);
  const auto low = static_cast<int64_t>(mask.key & kLow32),
             high = static_cast<int64_t>(mask.key >> 32);
  const at::Tensor row =
      MixedBits(at::arange(mask.first_row, mask.first_row + x.size(0), whole).bitwise_xor_(low));
  const at::Tensor column = MixedBits(
      at::arange(mask.first_column, mask.first_column + x.size(1), whole).bitwise_xor_(high));
  const at::Tensor bits = MixedBits(row.unsqueeze(1).bitwise_xor(column.unsqueeze(0)));
  const auto bound = static_cast<int64_t>(std::llround(mask.p * 0x1p32));
  return at::ge(bits, bound).to(x.scalar_type()).mul_(1 / (1 - mask.p));
}

// x [..., n] with what the mask drops, or the gradient of that.
at::Tensor Dropped(const at::Tensor& x, const DropoutMask& mask) {
  static const OwnOperator<at::Tensor(const at::Tensor&, int64_t, int64_t, int64_t, double)> own(
      "equipoise::dropped");
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const auto key = static_cast<int64_t>(mask.key);
  const at::Tensor y = own.IsFor(rows) ? own(rows, key, mask.first_row, mask.first_column, mask.p)
                       : rows.is_cpu() ? DroppedOn(kernels::HostLauncher(), rows, mask)
                                       : at::mul(rows, Factors(rows, mask));
  return y.view(x.sizes());
}

struct DropoutNode : torch::autograd::Node {
  DropoutMask mask;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return {Dropped(gradients[0], mask)};
  }
  std::string name() const override { return "Dropout"; }
};

uint64_t BitsOf(const DropoutKey& key) {
  return XXH3_64bits_withSeed(key.name.data(), key.name.size(), key.noise);
}

}  // namespace

at::Tensor Dropout(const at::Tensor& x, double p, const DropoutKey& key) {
  EQUIPOISE_CHECK(p >= 0 && p < 1, p);
  const bool needs_node = NeedsGradient(x);
  const DropoutMask mask = {p, BitsOf(key), key.first_row, key.first_column};
  const BelowAutograd guard;
  at::Tensor y = Dropped(x, mask);
  if (!needs_node) return y;
  auto node = std::make_shared<DropoutNode>();
  node->mask = mask;
  Record(y, node, {&x});
  return y;
}

at::Tensor DropPath(const at::Tensor& x, double p, const DropoutKey& key) {
  EQUIPOISE_CHECK(p >= 0 && p < 1, p);
  // On the host, where so few numbers cost less than a kernel's launch.
  at::Tensor factors = at::empty({x.size(0)}, at::kFloat);
  const uint64_t bits = BitsOf(key);
  for (int64_t i = 0; i < x.size(0); ++i) {
    const auto drawn = static_cast<double>(XXH3_64bits_withSeed(&i, sizeof i, bits) >> 32);
    factors.mutable_data_ptr<float>()[i] = drawn < p * 0x1p32 ? 0 : static_cast<float>(1 / (1 - p));
  }
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[0] = x.size(0);
  return at::mul(x, ToDevice(factors.to(x.scalar_type()), x.device()).view(shape));
}

}  // namespace equipoise::ops
