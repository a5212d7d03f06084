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

int64_t TensorSpec::LargestBytes(int tensor_ranks, int64_t element_bytes) const {
  const int64_t elements = LargestPart(tensor_ranks);
  switch (packing) {
    case Packing::kNone:
      return elements * element_bytes;
    case Packing::kNf4: {
      const int64_t blocks = (elements + kNf4Block - 1) / kNf4Block;
      const int64_t nested = (blocks + kNf4Nested - 1) / kNf4Nested;
      return (elements + 1) / 2 + blocks + 4 * nested + 4;
    }
    case Packing::kInt8:
      return elements + 4 * (elements / shape[1]);
  }
  return 0;
}

}  // namespace equipoise
