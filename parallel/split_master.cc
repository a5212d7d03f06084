// On a CPU, loops over the bits that the compiler vectorises: a number is read and written once.
// Elsewhere, ATen's kernels on integer views; a few bytes more are moved, and on a GPU each pass is
// one launch. The low half of a master is its remainder as it stands: rounding adds 2^15 to it, and
// measuring from the rounded number takes the same away.

#include "parallel/split_master.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

#include "configs/base/error.h"

namespace equipoise {
namespace {

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

uint16_t* Halves(const at::Tensor& half) { return static_cast<uint16_t*>(half.data_ptr()); }

uint16_t Rounded(uint32_t bits) { return static_cast<uint16_t>((bits + 0x8000U) >> 16); }

// One of the two 16-bit halves of each element: 0, the low one; 1, the high one.
at::Tensor HalfOf(const at::Tensor& bits, int64_t which) {
  return bits.view(at::kShort).view({-1, 2}).select(1, which);
}

}  // namespace

void RoundMaster(const at::Tensor& master, at::Tensor weight) {
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
  uint16_t* to = Halves(weight);
  at::parallel_for(0, master.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = Rounded(from[i]);
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
  uint16_t *high = Halves(weight), *low = Halves(remainder);
  at::parallel_for(0, master.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t bits = from[i];
      high[i] = Rounded(bits);
      low[i] = static_cast<uint16_t>(bits);
    }
  });
}

void JoinMaster(const at::Tensor& weight, const at::Tensor& remainder, at::Tensor master) {
  Check(master, weight, remainder);
  if (!master.is_cpu()) {
    master.view(at::kInt).copy_(remainder).add_(weight.view(at::kShort), /*alpha=*/0x10000);
    return;
  }
  const uint16_t *high = Halves(weight), *low = Halves(remainder);
  auto* to = static_cast<uint32_t*>(master.data_ptr());
  at::parallel_for(0, master.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto below = static_cast<uint32_t>(static_cast<int16_t>(low[i]));
      to[i] = (static_cast<uint32_t>(high[i]) << 16) + below;
    }
  });
}

}  // namespace equipoise
