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
#include "models/ops/record.h"
#include "parallel/device.h"
#include "parallel/random_bits.h"

namespace equipoise::ops {
namespace {

constexpr int64_t kLow32 = 0xffffffff;

// Place of x's first element in the whole tensor.
struct Place {
  int64_t row = 0, column = 0;
};

// Factors of the elements of x [rows, n]: 0 or 1 / (1 - p).
at::Tensor Factors(const at::Tensor& x, double p, uint64_t key, const Place& first) {
  const at::TensorOptions whole = x.options().dtype(at::kLong);
  const auto low = static_cast<int64_t>(key & kLow32), high = static_cast<int64_t>(key >> 32);
  const at::Tensor row =
      MixedBits(at::arange(first.row, first.row + x.size(0), whole).bitwise_xor_(low));
  const at::Tensor column =
      MixedBits(at::arange(first.column, first.column + x.size(1), whole).bitwise_xor_(high));
  const at::Tensor bits = MixedBits(row.unsqueeze(1).bitwise_xor(column.unsqueeze(0)));
  const auto bound = static_cast<int64_t>(std::llround(p * 0x1p32));
  return at::ge(bits, bound).to(x.scalar_type()).mul_(1 / (1 - p));
}

at::Tensor Rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

struct DropoutNode : torch::autograd::Node {
  double p = 0;
  uint64_t key = 0;
  Place first;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor g = Rows(gradients[0]);
    return {at::mul(g, Factors(g, p, key, first)).view(gradients[0].sizes())};
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
  const uint64_t bits = BitsOf(key);
  const Place first = {key.first_row, key.first_column};
  const BelowAutograd guard;
  const at::Tensor rows = Rows(x);
  at::Tensor y = at::mul(rows, Factors(rows, p, bits, first)).view(x.sizes());
  if (!needs_node) return y;
  auto node = std::make_shared<DropoutNode>();
  node->p = p;
  node->key = bits;
  node->first = first;
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
