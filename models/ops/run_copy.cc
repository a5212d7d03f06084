#include "models/ops/run_copy.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "configs/base/error.h"
#include "parallel/intra_op.h"

namespace equipoise::ops {
namespace {

constexpr int64_t kByteGrain = 1 << 17;  // fewest bytes for a thread

// The outer dimensions of a copy, the innermost of them last, and a place in them.
struct Dimension {
  int64_t size, from_stride, to_stride;  // in bytes
  int64_t at = 0;
};

bool HasRuns(const at::Tensor& x) { return x.is_cpu() && x.dim() > 1 && x.stride(-1) == 1; }

}  // namespace

void CopyRuns(const at::Tensor& from, const at::Tensor& to) {
  EQUIPOISE_CHECK(from.sizes() == to.sizes(), from.sizes(), " to ", to.sizes());
  if (!HasRuns(from) || !HasRuns(to) || from.scalar_type() != to.scalar_type()) {
    to.copy_(from);
    return;
  }
  if (from.numel() == 0) return;
  const auto element = static_cast<int64_t>(from.element_size());
  std::vector<Dimension> outer;
  for (int64_t d = 0; d + 1 < from.dim(); ++d)
    outer.push_back({from.size(d), from.stride(d) * element, to.stride(d) * element});
  const int64_t run = from.size(-1) * element, runs = from.numel() / from.size(-1);
  const auto* const source = static_cast<const char*>(from.const_data_ptr());
  auto* const target = static_cast<char*>(to.mutable_data_ptr());
  IntraOpFor(0, runs, std::max<int64_t>(1, kByteGrain / run), [&](int64_t begin, int64_t end) {
    std::vector<Dimension> place = outer;
    int64_t read = 0, write = 0, rest = begin;
    for (auto d = place.rbegin(); d != place.rend(); ++d) {
      d->at = rest % d->size;
      rest /= d->size;
      read += d->at * d->from_stride;
      write += d->at * d->to_stride;
    }
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(target + write, source + read, static_cast<size_t>(run));
      for (auto d = place.rbegin(); d != place.rend(); ++d) {
        read += d->from_stride;
        write += d->to_stride;
        if (++d->at < d->size) break;
        read -= d->size * d->from_stride;
        write -= d->size * d->to_stride;
        d->at = 0;
      }
    }
  });
}

}  // namespace equipoise::ops
