// On a CPU, loops over the bits that the compiler vectorises: a number is read and written once.
// Elsewhere, ATen's kernels on integer views; a few bytes more are moved, and on a GPU each pass is
// one launch.

#include "parallel/split_master.h"

#include <algorithm>
#include <cstdint>

#include "configs/base/error.h"
#include "parallel/intra_op.h"
#include "parallel/kernels/split_bits.h"

namespace equipoise {
namespace {

using kernels::Bf16;

constexpr int64_t kGrain = 1 << 15;          // elements of a thread, at least
constexpr int64_t kRoundedAtOnce = 1 << 26;  // elements whose copy is in memory, on a device

void Check(const at::Tensor& master, const at::Tensor& weight) {
  EQUIPOISE_CHECK(master.scalar_type() == at::kFloat && weight.scalar_type() == at::kBFloat16);
  EQUIPOISE_CHECK(master.numel() == weight.numel() && master.device() == weight.device());
  EQUIPOISE_CHECK(master.is_contiguous() && weight.is_contiguous());
}

void Check(const at::Tensor& master, const at::Tensor& weight, const at::Tensor& remainder) {
  Check(master, weight);
  EQUIPOISE_CHECK(remainder.scalar_type() == at::kShort && remainder.is_contiguous());
  EQUIPOISE_CHECK(master.numel() == remainder.numel() && master.device() == remainder.device());
}

const uint32_t* Bits(const at::Tensor& master) {
  return static_cast<const uint32_t*>(master.const_data_ptr());
}

template <class Half>
Half* Halves(const at::Tensor& half) {
  return static_cast<Half*>(half.data_ptr());
}

// One of the two 16-bit halves of each element: 0, the low one; 1, the high one.
at::Tensor HalfOf(const at::Tensor& bits, int64_t which) {
  return bits.view(at::kShort).view({-1, 2}).select(1, which);
}

}  // namespace

void RoundMaster(const at::Tensor& master, at::Tensor weight) {
  if (weight.scalar_type() == at::kHalf) {
    weight.copy_(master);
    return;
  }
  Check(master, weight);
  if (!master.is_cpu()) {
    const at::Tensor bits = master.view({-1}).view(at::kInt), rounded = weight.view({-1});
    for (int64_t begin = 0; begin < bits.numel(); begin += kRoundedAtOnce) {
      const int64_t size = std::min(kRoundedAtOnce, bits.numel() - begin);
      rounded.narrow(0, begin, size)
          .view(at::kShort)
          .copy_(HalfOf(bits.narrow(0, begin, size).add(0x8000), 1));
    }
    return;
  }
  const uint32_t* from = Bits(master);
  auto* to = Halves<Bf16>(weight);
  IntraOpFor(0, master.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = kernels::RoundedHalf(from[i]);
  });
}

void SplitMaster(const at::Tensor& master, at::Tensor weight, at::Tensor remainder) {
  Check(master, weight, remainder);
  if (!master.is_cpu()) {
    remainder.view({-1}).copy_(HalfOf(master.view({-1}), 0));
    RoundMaster(master, weight);
    return;
  }
  const uint32_t* from = Bits(master);
  auto* high = Halves<Bf16>(weight);
  auto* low = Halves<int16_t>(remainder);
  IntraOpFor(0, master.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t bits = from[i];
      high[i] = kernels::RoundedHalf(bits);
      low[i] = kernels::RemainingHalf(bits);
    }
  });
}

void JoinMaster(const at::Tensor& weight, const at::Tensor& remainder, at::Tensor master) {
  Check(master, weight, remainder);
  if (!master.is_cpu()) {
    master.view(at::kInt).copy_(remainder).add_(weight.view(at::kShort), /*alpha=*/0x10000);
    return;
  }
  const auto* high = Halves<Bf16>(weight);
  const auto* low = Halves<int16_t>(remainder);
  auto* to = static_cast<uint32_t*>(master.data_ptr());
  IntraOpFor(0, master.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = kernels::JoinedHalves(high[i], low[i]);
  });
}

}  // namespace equipoise
