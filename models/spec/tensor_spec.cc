#include "models/spec/tensor_spec.h"

#include <algorithm>

#include "configs/base/error.h"

namespace equipoise {
namespace {

// Codes two a byte, a scale in 16 bits and a zero in 8 for each output and group, and each input's
// group. A range of inputs needs the scales of its groups alone where these are neighbours.
int64_t GptqBytes(const TensorSpec& weight, int64_t elements) {
  const bool has_rows = weight.split.by == Split::By::kNothing || weight.dim == 0;
  const int64_t in = has_rows ? weight.shape[1] : elements / weight.shape[0];
  const int64_t out = has_rows ? elements / weight.shape[1] : weight.shape[0];
  int64_t groups = weight.gptq.Groups(weight.shape[1]);
  if (in < weight.shape[1] && !weight.gptq.act_order) {
    groups = std::min(groups, weight.gptq.Groups(in) + 1);
  }
  return out * ((in + 1) / 2) + 3 * out * groups + 4 * in;
}

}  // namespace

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
    case Packing::kInt8: {
      const bool by_inputs = split.by != Split::By::kNothing && dim == 1;  // all scales stay
      return elements + 4 * (by_inputs ? shape[0] : elements / shape[1]);
    }
    case Packing::kGptq:
      return GptqBytes(*this, elements);
  }
  return 0;
}

}  // namespace equipoise
