#include "models/layers/linears.h"

#include <ATen/ops/cat.h>

#include "models/ops/tensor_ranks.h"

namespace equipoise {

at::Tensor ColumnLinears::operator()(const at::Tensor& x) const {
  if (group_ == nullptr) return ops::FusedLinear(x, own_);
  const at::Tensor copy = ops::AllReduceBackward(x, *group_);
  const at::Tensor y = ops::FusedLinear(copy, own_);
  return shared_.empty() ? y : at::cat({y, Shared(copy)}, -1);
}

// Each rank of a key head has the gradient from its own query heads. With frozen weights that is
// enough: the input's gradient is summed over all ranks. With trained weights the parts are summed
// here, so that every rank of the key head has the whole gradient of the weight; then only one of
// them may pass it on to the input.
at::Tensor ColumnLinears::Shared(const at::Tensor& x) const {
  if (!shared_[0].weight->trainable) return ops::FusedLinear(x, shared_);
  const at::Tensor y = ops::FusedLinear(share_.owner ? x : x.detach(), shared_);
  return ops::SumGradientOfPart(y, share_.part, share_.parts, *group_);
}

at::Tensor RowLinear::operator()(const at::Tensor& x) const {
  if (group_ == nullptr) return ops::Linear(x, *weights_.weight, weights_.bias);
  return ops::AllReduceForward(ops::Linear(x, *weights_.weight), weights_.bias, *group_);
}

}  // namespace equipoise
