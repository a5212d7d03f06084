#include "models/spec/tensor_spec.h"

#include "configs/base/error.h"

namespace equipoise {

Share Split::On(const TensorParallel& rank) const {
  switch (by) {
    case By::kUnits:
      return ShareUnits(rank, count, unit, what);
    case By::kWidth:
      return ShareWidth(rank, count, what);
    case By::kQueryHeads:
      return ShareHeads(rank, count, key_heads, unit, what).query;
    case By::kKeyHeads:
      return ShareHeads(rank, count, key_heads, unit, what).key;
    case By::kNothing:
      break;
  }
  EQUIPOISE_CHECK(false, "a share of a tensor that is not split");
  return {};
}

int64_t TensorSpec::numel() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

int64_t TensorSpec::LargestPart(int tensor_ranks) const {
  if (tensor_ranks == 1 || split.by == Split::By::kNothing) return numel();
  return numel() / split.whole() * split.Largest(tensor_ranks);
}

}  // namespace equipoise
