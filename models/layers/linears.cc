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

// Each rank of a key head has the gradient from its own query heads. Frozen, that is all there is
// to it: the sum over all ranks of the input's gradient puts the pieces together. Trained, the
// pieces are summed here, so that every holder has the whole gradient of the weight; then the input
// may get it from one of them only.
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
