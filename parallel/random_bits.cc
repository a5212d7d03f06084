#include "parallel/random_bits.h"

#include <ATen/TensorOperators.h>

namespace equipoise {
namespace {

constexpr int64_t kLow32 = 0xffffffff;
constexpr int64_t kFactor = 0x45d9f3b;

}  // namespace

at::Tensor MixedBits(at::Tensor x) {
  for (int round = 0; round < 2; ++round) {
    x = x.bitwise_xor(x.bitwise_right_shift(16)).mul_(kFactor).bitwise_and_(kLow32);
  }
  return x.bitwise_xor(x.bitwise_right_shift(16));
}

at::Tensor RandomBits(uint64_t key, const at::Tensor& elements) {
  const auto low = static_cast<int64_t>(key & kLow32), high = static_cast<int64_t>(key >> 32);
  const at::Tensor mixed = MixedBits(elements.bitwise_and(kLow32).bitwise_xor_(low));
  return MixedBits(elements.bitwise_right_shift(32).bitwise_xor_(mixed).bitwise_xor_(high));
}

}  // namespace equipoise
