#include "models/layers/text_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/chunk.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/split_with_sizes.h>

#include <utility>
#include <vector>

#include "models/layers/kv_cache.h"
#include "models/ops/activation.h"
#include "models/ops/attention.h"
#include "models/ops/embedding.h"
#include "models/ops/norm.h"
#include "models/ops/rotary.h"

namespace equipoise {
namespace {

// Context ranks exchange the features that travel with the rows too: they are rows of the layer's
// input and output then.
LayerSpec WithFeatures(LayerSpec spec, const TensorParallel& tensor) {
  spec.takes_features = tensor.context.size > 1 && spec.input.features > 0;
  return spec;
}

}  // namespace

EmbeddingLayer::EmbeddingLayer(const LayerSpec& spec, const TextConfig& config,
                               const TensorParallel& tensor)
    : Layer(WithFeatures(spec, tensor), tensor),
      padding_id_(config.pad_token_id),
      weight_(Get("weight")) {}

at::Tensor EmbeddingLayer::Forward(const MicroBatch& batch, const at::Tensor& input,
                                   double /*loss_scale*/) {
  if (batch.tokens() == 0) return {};
  if (tensor().context.size > 1) return OfContext(batch, input);
  return ops::EmbedAndSplice(batch.input_ids, input, batch.image_positions, weight_,
                             {tensor().group, padding_id_, tensor().sequence});
}

// Rows behind the last are embedded as any token is, and have no gradient.
at::Tensor EmbeddingLayer::OfContext(const MicroBatch& batch, const at::Tensor& input) {
  const ContextParallel& context = tensor().context;
  const OwnRows rows = RowsOf(context, batch.tokens());
  at::Tensor ids = batch.input_ids.narrow(0, rows.begin, rows.size);
  if (rows.size < rows.share) ids = at::constant_pad_nd(ids, {0, rows.share - rows.size});
  // The rows of the pictures, and behind them as many of each feature.
  std::vector<at::Tensor> received;
  if (input.defined()) {
    for (const at::Tensor& sent : input.chunk(1 + spec().input.features)) {
      received.push_back(
          ops::SendRows(sent, batch.features.sent, batch.features.received, *context.group));
    }
  }
  at::Tensor output = ops::EmbedAndSplice(ids, received.empty() ? at::Tensor() : received.front(),
                                          batch.features.positions, weight_,
                                          {tensor().group, padding_id_, tensor().sequence});
  if (received.size() < 2) return output;
  received.front() = std::move(output);
  return at::cat(received, /*dim=*/0);
}

DecoderLayer::DecoderLayer(const LayerSpec& spec, const TextConfig& config,
                           std::shared_ptr<RotaryTable> rotary, const TensorParallel& tensor)
    : Layer(spec, tensor),
      head_dim_(config.head_dim),
      eps_(config.rms_norm_eps),
      rotary_(std::move(rotary)),
      attention_norm_(&GetOfRows("input_layernorm.weight")),
      qkv_(GetColumnLinears({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})),
      q_norm_(Find("self_attn.q_norm.weight")),
      k_norm_(Find("self_attn.k_norm.weight")),
      out_(GetRowLinear("self_attn.o_proj")),
      widths_(qkv_.widths()),
      mlp_norm_(&GetOfRows("post_attention_layernorm.weight")),
      gate_up_(GetColumnLinears({"mlp.gate_proj", "mlp.up_proj"})),
      down_(GetRowLinear("mlp.down_proj")) {
  if (tensor.context.size > 1) ShareOutHeads();
}

void DecoderLayer::ShareOutHeads() {
  const ContextParallel& context = tensor().context;
  const int64_t queries = widths_[0], keys = widths_[1];
  for (int rank = 0; rank < context.size; ++rank) {
    const TensorParallel place = {.rank = rank, .size = context.size};
    const auto [q, k] =
        ShareHeads(place, queries / head_dim_, keys / head_dim_, head_dim_, "attention heads");
    qkv_columns_.push_back(
        {{q.begin, q.size}, {queries + k.begin, k.size}, {queries + keys + k.begin, k.size}});
    out_columns_.push_back({{q.begin, q.size}});
  }
  const ops::ColumnRanges& own = qkv_columns_[static_cast<size_t>(context.rank)];
  widths_ = {own[0].size, own[1].size, own[2].size};
}

DecoderLayer::Heads DecoderLayer::RotatedHeads(const MicroBatch& batch, const at::Tensor& x) {
  const std::vector<int64_t>& widths = widths_;
  const ContextParallel& context = tensor().context;
  at::Tensor qkv = qkv_(x, RowShare(batch.tokens(), context.size));
  if (context.size > 1) qkv = ops::RowsToColumns(qkv, batch.tokens(), qkv_columns_, *context.group);
  const auto& [cos, sin] = rotary_->At(batch);
  if (q_norm_ == nullptr) {  // q and k are adjacent: one rotation
    const std::vector<at::Tensor> parts =
        at::split_with_sizes(qkv, {widths[0] + widths[1], widths[2]}, 1);
    const std::vector<at::Tensor> rotated =
        at::split_with_sizes(ops::Rotate(parts[0], cos, sin), {widths[0], widths[1]}, 1);
    return {rotated[0], rotated[1], parts[1]};
  }
  const std::vector<at::Tensor> parts = at::split_with_sizes(qkv, widths, 1);
  const auto normal = [&](const at::Tensor& heads, Parameter& weight) {
    return ops::RmsNorm(heads, weight, eps_, tensor().group);
  };
  return {ops::Rotate(normal(parts[0], *q_norm_), cos, sin),
          ops::Rotate(normal(parts[1], *k_norm_), cos, sin), parts[2]};
}

at::Tensor DecoderLayer::CachedAttention(const MicroBatch& batch, const Heads& heads) const {
  const std::vector<int64_t>& ends = batch.cu_seqlens;
  std::vector<at::Tensor> keys, values;
  for (size_t s = 0; s + 1 < ends.size(); ++s) {
    const auto cut = [&](const at::Tensor& t) {
      return t.narrow(0, ends[s], ends[s + 1] - ends[s]);
    };
    auto [k, v] = batch.decoding->caches[s]->Append(static_cast<size_t>(spec().index), cut(heads.k),
                                                    cut(heads.v));
    keys.push_back(std::move(k));
    values.push_back(std::move(v));
  }
  return ops::CachedAttention(heads.q, keys, values, ends, head_dim_);
}

at::Tensor DecoderLayer::Attention(const MicroBatch& batch, const at::Tensor& x) {
  const auto [q, k, v] = RotatedHeads(batch, x);
  const at::Tensor y = batch.decoding != nullptr
                           ? CachedAttention(batch, {q, k, v})
                           : ops::PackedAttention(q, k, v, batch.cu_seqlens, head_dim_);
  const ContextParallel& context = tensor().context;
  return context.size == 1 ? y : ops::ColumnsToRows(y, out_columns_, *context.group);
}

at::Tensor DecoderLayer::Forward(const MicroBatch& batch, const at::Tensor& input,
                                 double /*loss_scale*/) {
  return ForwardHalf(Half::kMlp, batch, ForwardHalf(Half::kAttention, batch, input));
}

at::Tensor DecoderLayer::ForwardHalf(Half half, const MicroBatch& batch, const at::Tensor& input) {
  if (!input.defined()) return {};
  if (half == Half::kAttention) {
    const at::Tensor normal = ops::RmsNorm(input, *attention_norm_, eps_);
    return input + out_(Attention(batch, normal));
  }
  const int64_t rows = RowShare(batch.tokens(), tensor().context.size);
  const at::Tensor gate_up = gate_up_(ops::RmsNorm(input, *mlp_norm_, eps_), rows);
  return input + down_(ops::SwiGlu(gate_up));
}

}  // namespace equipoise
