#include "models/layers/head.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>

#include "models/layers/kv_cache.h"
#include "models/ops/cross_entropy.h"
#include "models/ops/norm.h"
#include "models/ops/shared_rows.h"
#include "models/ops/vocabulary.h"
#include "parallel/device.h"

namespace equipoise {

HeadLayer::HeadLayer(const LayerSpec& spec, const TextConfig& config, Parameter* tied,
                     const TensorParallel& tensor)
    : Layer(spec, tensor),
      eps_(config.rms_norm_eps),
      tied_(tied != nullptr),
      norm_(Get("norm.weight")),
      weight_(tied) {
  if (tied_) {
    BorrowParameter(*tied);
  } else if (spec.tied.name.empty()) {
    weight_ = &Get("lm_head.weight");
  } else {
    weight_ = &Add(spec.tied);
    weight_->part.owner = false;
  }
}

// Norm and projection take all rows that have a target on every tensor rank, as each has a part of
// the vocabulary: their gradients are whole.
at::Tensor HeadLayer::GatheredRows(const MicroBatch& batch, const at::Tensor& input) const {
  if (!tensor().sequence) return input;
  const int64_t rows = RowShare(batch.tokens(), tensor().context.size);
  return ops::GatherWholeRows(input, rows, *tensor().group);
}

at::Tensor HeadLayer::AllRows(const MicroBatch& batch, const at::Tensor& input) const {
  const at::Tensor own = GatheredRows(batch, input);
  const ContextParallel& context = tensor().context;
  return context.size == 1 ? own : ops::GatherWholeRows(own, batch.tokens(), *context.group);
}

at::Tensor HeadLayer::Decode(const MicroBatch& batch, const at::Tensor& input) const {
  at::Tensor ends = at::empty({std::ssize(batch.cu_seqlens) - 1}, at::kLong);
  std::transform(batch.cu_seqlens.begin() + 1, batch.cu_seqlens.end(),
                 ends.mutable_data_ptr<int64_t>(), [](int64_t end) { return end - 1; });
  const at::Tensor last = AllRows(batch, input).index_select(0, ToDevice(ends, input.device()));
  const at::Tensor normal = ops::RmsNorm(last, norm_, eps_);
  return batch.decoding->greedy ? ops::VocabularyArgmax(normal, *weight_, tensor().group)
                                : ops::VocabularyLogits(normal, *weight_, tensor().group);
}

at::Tensor HeadLayer::Forward(const MicroBatch& batch, const at::Tensor& input, double loss_scale) {
  const bool has_loss = batch.targets.defined();
  if (batch.decoding != nullptr) return Decode(batch, input);
  if (!has_loss) {
    if (!input.defined()) return {};
    const at::Tensor normal = ops::RmsNorm(AllRows(batch, input), norm_, eps_);
    return ops::VocabularyLogits(normal, *weight_, tensor().group);
  }
  // Targets are on the CPU, so that their number is known without waiting for a device.
  const auto places = [](const at::Tensor& of) { return of.ne(kNoTarget).nonzero().squeeze(1); };
  at::Tensor rows = places(batch.targets);
  if (!input.defined() || rows.size(0) == 0) return at::scalar_tensor(0.0, at::kDouble);
  const auto [share, begin, size] = RowsOf(tensor().context, batch.tokens());
  const auto own = [begin = begin, size = size](const at::Tensor& all) {
    return all.narrow(0, begin, size);
  };
  if (tensor().context.size > 1) rows = places(own(batch.targets));
  // The layers before go backwards together on all context ranks: where others have targets, this
  // one has gradients of zeros.
  if (rows.size(0) == 0) return input.narrow(0, 0, 0).sum(at::kDouble);
  const auto chosen = [&](const at::Tensor& all) {
    return ToDevice(own(all).index_select(0, rows), input.device());
  };
  ops::Targets targets;
  targets.ids = chosen(batch.targets);
  if (batch.target_weights.defined()) targets.weights = chosen(batch.target_weights);
  targets.scale = loss_scale;
  const at::Tensor picked =
      GatheredRows(batch, input).index_select(0, ToDevice(rows, input.device()));
  const at::Tensor normal = ops::RmsNorm(picked, norm_, eps_);
  return ops::LinearCrossEntropy(normal, targets, *weight_, /*in_backward=*/tied_, tensor().group);
}

}  // namespace equipoise
