#include "parallel/stochastic_rounding.h"

#include <ATen/ops/arange.h>

#include <algorithm>

#include "configs/base/error.h"
#include "parallel/random_bits.h"

namespace equipoise {
namespace {

// Elements whose numbers, of 8 bytes each, are in memory at a time.
constexpr int64_t kAtOnce = 1 << 22;
// Of elements that are counted in 32 bits, which leave no period of more.
constexpr int64_t kLongestPeriod = INT32_MAX;

// WholePlace::At() of elements [begin, end).
at::Tensor NumbersOf(const kernels::WholePlace& place, int64_t begin, int64_t end,
                     const at::TensorOptions& device) {
  at::Tensor numbers = at::arange(begin, end, device.dtype(at::kLong));
  if (place.jump != 0 && end > place.until) {
    // 0 before the first jump, as the quotient is -1 or less there.
    const at::Tensor jumps =
        numbers.sub(place.until).div_(place.period, "floor").add_(1).clamp_min_(0);
    numbers.add_(jumps.mul_(place.jump));
  }
  return numbers.add_(place.first);
}

}  // namespace

kernels::WholePlace PlaceInWhole(const Parameter& parameter, int64_t element) {
  const TensorPart& part = parameter.part;
  if (!part.split()) return {element};
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(part.dim) + 1; d < parameter.shape.size(); ++d)
    inner *= parameter.shape[d];
  const int64_t period = parameter.shape[static_cast<size_t>(part.dim)] * inner;
  const int64_t whole = part.whole * inner;
  const int64_t within = element % period;
  return {element / period * whole + part.begin * inner + within, period - within,
          std::min(period, kLongestPeriod), whole - period};
}

void RoundStochastically(const at::Tensor& exact, const RandomPlace& at, at::Tensor rounded) {
  EQUIPOISE_CHECK(exact.scalar_type() == at::kFloat && rounded.scalar_type() == at::kBFloat16);
  EQUIPOISE_CHECK(exact.is_contiguous() && rounded.is_contiguous() && exact.dim() == 1);
  EQUIPOISE_CHECK(exact.numel() == rounded.numel() && exact.numel() <= kLongestPeriod);
  for (int64_t begin = 0; begin < exact.numel(); begin += kAtOnce) {
    const int64_t size = std::min(kAtOnce, exact.numel() - begin);
    const at::Tensor random =
        RandomBits(at.key, NumbersOf(at.place, begin, begin + size, exact.options()));
    const at::Tensor bits = exact.narrow(0, begin, size).view(at::kInt);
    const at::Tensor sums = bits.add(random.bitwise_right_shift(16).to(at::kInt));
    // The upper halves.
    rounded.narrow(0, begin, size)
        .view(at::kShort)
        .copy_(sums.view(at::kShort).view({-1, 2}).select(1, 1));
  }
}

}  // namespace equipoise
