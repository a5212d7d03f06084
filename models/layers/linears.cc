#include "models/layers/linears.h"

#include <ATen/ops/cat.h>

#include "models/ops/dropout.h"
#include "models/ops/tensor_ranks.h"

namespace equipoise {

at::Tensor Adapters::Down(const at::Tensor& x, int64_t rows, int64_t first_row) const {
  if (dropout == 0 || *noise == 0) return ops::FusedLinear(x, down);
  const Parameter& a = *down[0].weight;
  const ops::DropoutKey key = {*noise, a.name, a.part.dim == 1 ? a.part.begin : 0,
                               context_rank * rows + first_row};
  return ops::FusedLinear(ops::Dropout(x, dropout, key), down);
}

at::Tensor Adapters::Run(const Input& input, const at::Tensor& u,
                         const std::vector<ops::LinearWeights>& linears, const Group& group,
                         Communicator* across) const {
  const bool has_magnitudes = !group.magnitudes.empty();
  const bool bias_last = has_magnitudes || across != nullptr;
  std::vector<ops::LinearWeights> weights = linears;
  if (bias_last) {
    for (ops::LinearWeights& each : weights) each.bias = nullptr;
  }
  at::Tensor y = ops::FusedLinear(input.x, weights, input.kept, input.beside);
  if (across != nullptr) {
    Parameter* bias = has_magnitudes ? nullptr : linears[0].bias;
    y = scatters ? ops::ScatterRows(y, bias, *across) : ops::AllReduceForward(y, bias, *across);
  }
  if (!group.parts.empty()) y = ops::AddLowRank(y, u, group.parts, scale);
  if (!has_magnitudes) return y;
  return ops::AddBiases(ops::Magnitudes(y, group.magnitudes, scale, across), linears);
}

at::Tensor ColumnLinears::operator()(const at::Tensor& x, int64_t rows) const {
  if (shares_rows_) return OnRows(x, rows);
  at::Tensor u;
  if (!adapters_.empty()) u = adapters_.Down(x, x.size(0));
  if (u.defined() && group_ != nullptr) u = ops::AllReduceBackward(u, *group_);
  if (group_ == nullptr) return Products({x}, u);
  const auto beside = std::make_shared<DeferredGradients>();
  return Products({ops::AllReduceBackward(x, *group_, beside), nullptr, beside}, u);
}

// The product with A is of a rank's own rows, and gathered: it has fewer columns than x.
at::Tensor ColumnLinears::OnRows(const at::Tensor& x, int64_t rows) const {
  at::Tensor u;
  if (!adapters_.empty()) {
    u = ops::GatherRows(adapters_.Down(x, rows, group_->rank() * x.size(0)), rows, *group_);
  }
  const auto beside = std::make_shared<DeferredGradients>();
  return Products({ops::GatherRows(x, rows, *group_, beside),
                   std::make_shared<ops::SharedInput>(x, rows, *group_), beside},
                  u);
}

at::Tensor ColumnLinears::Products(const Adapters::Input& input, const at::Tensor& u) const {
  const at::Tensor own = u.defined() ? u.narrow(-1, 0, adapters_.own.rank) : u;
  const at::Tensor y = adapters_.Run(input, own, own_, adapters_.own, nullptr);
  return shared_.empty() ? y : at::cat({y, Shared(input, u)}, -1);
}

// Each rank of a key head has the gradient from its own query heads. With frozen weights that is
// enough: the input's gradient is summed over all ranks. With trained weights, an adapter's too,
// the parts are summed here, so that every rank of the key head has the whole gradient of the
// weight; then only one of them may pass it on to the input.
at::Tensor ColumnLinears::Shared(const Adapters::Input& input, const at::Tensor& u) const {
  const bool adapted = !adapters_.shared.parts.empty();
  if (!adapted && !shared_[0].weight->trainable) return ops::FusedLinear(input.x, shared_);
  at::Tensor part;
  if (adapted) {
    part =
        ops::PassGradientIf(share_.owner, u.narrow(-1, adapters_.own.rank, adapters_.shared.rank));
  }
  const at::Tensor y =
      adapters_.Run({ops::PassGradientIf(share_.owner, input.x), input.kept, input.beside}, part,
                    shared_, adapters_.shared, nullptr);
  return ops::SumGradientOfPart(y, share_.part, share_.parts, *group_);
}

at::Tensor RowLinear::operator()(const at::Tensor& x) const {
  at::Tensor u;
  if (!adapters_.empty()) u = adapters_.Down(x, x.size(0));
  if (u.defined() && group_ != nullptr) {
    u = adapters_.scatters ? ops::ScatterRows(u, nullptr, *group_)
                           : ops::AllReduceForward(u, nullptr, *group_);
  }
  return adapters_.Run({x}, u, {weights_}, adapters_.own, group_);
}

}  // namespace equipoise
