#include "models/layers/text_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/chunk.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/split_with_sizes.h>

#include <algorithm>
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
      own_(widths_),
      mlp_norm_(&GetOfRows("post_attention_layernorm.weight")),
      gate_up_(GetColumnLinears({"mlp.gate_proj", "mlp.up_proj"})),
      down_(GetRowLinear("mlp.down_proj")) {
  if (tensor.context.size > 1) ShareOutHeads();
}

void DecoderLayer::ShareOutHeads() {
  const ContextParallel& context = tensor().context;
  const int64_t queries = widths_[0], keys = widths_[1];
  const auto range = [](const Share& share, int64_t before) {
    return Range{before + share.begin, before + share.begin + share.size};
  };
  split_ = SplitOverContext(queries / head_dim_, keys / head_dim_, context.size);
  for (int rank = 0; rank < context.size; ++rank) {
    const TensorParallel place = {.rank = rank / split_.row_groups, .size = split_.head_groups};
    const auto [q, k] =
        ShareHeads(place, queries / head_dim_, keys / head_dim_, head_dim_, "attention heads");
    query_columns_.push_back({range(q, 0)});
    key_columns_.push_back({range(k, 0), range(k, keys)});
    qkv_columns_.push_back({range(q, 0), range(k, queries), range(k, queries + keys)});
  }
  own_.clear();
  for (const Range& own : qkv_columns_[static_cast<size_t>(context.rank)])
    own_.push_back(own.size());
}

at::Tensor DecoderLayer::Normal(const at::Tensor& heads, Parameter* weight) const {
  return weight == nullptr ? heads : ops::RmsNorm(heads, *weight, eps_, tensor().group);
}

DecoderLayer::Heads DecoderLayer::RotatedRows(const MicroBatch& batch, const at::Tensor& qkv) {
  const ContextParallel& context = tensor().context;
  // Tokens that are generated look at keys of a cache: those of a segment on one rank.
  std::vector<Ranges> rows =
      CausalRows(batch.cu_seqlens, split_.row_groups, /*cut=*/batch.decoding == nullptr);
  Heads heads;
  heads.parts.columns = query_columns_;
  for (int rank = 0; rank < context.size; ++rank)
    heads.parts.rows.push_back(rows[static_cast<size_t>(rank % split_.row_groups)]);
  const std::vector<at::Tensor> parts = at::split_with_sizes(qkv, {widths_[0], 2 * widths_[1]}, 1);
  heads.q = ops::RowsToColumns(parts[0], batch.tokens(), heads.parts, *context.group);
  const at::Tensor kv =
      ops::RowsToColumns(parts[1], batch.tokens(), {key_columns_, {}}, *context.group);
  const std::vector<at::Tensor> keys_values = at::split_with_sizes(kv, {own_[1], own_[2]}, 1);
  const auto& [cos, sin] = rotary_->At(batch);
  const Ranges& own = heads.parts.rows[static_cast<size_t>(context.rank)];
  heads.q = ops::Rotate(Normal(heads.q, q_norm_), ops::TakeRows(cos, own), ops::TakeRows(sin, own),
                        head_dim_);
  heads.k = ops::Rotate(Normal(keys_values[0], k_norm_), cos, sin, head_dim_);
  heads.v = keys_values[1];
  return heads;
}

DecoderLayer::Heads DecoderLayer::RotatedHeads(const MicroBatch& batch, const at::Tensor& x) {
  const ContextParallel& context = tensor().context;
  at::Tensor qkv = qkv_(x, RowShare(batch.tokens(), context.size));
  if (split_.row_groups > 1) return RotatedRows(batch, qkv);
  if (context.size > 1)
    qkv = ops::RowsToColumns(qkv, batch.tokens(), {qkv_columns_, {}}, *context.group);
  Heads heads;
  heads.parts.columns = query_columns_;
  const auto& [cos, sin] = rotary_->At(batch);
  if (q_norm_ == nullptr) {  // q and k are adjacent: one rotation
    const std::vector<at::Tensor> parts =
        at::split_with_sizes(qkv, {own_[0] + own_[1], own_[2]}, 1);
    const std::vector<at::Tensor> rotated =
        at::split_with_sizes(ops::Rotate(parts[0], cos, sin, head_dim_), {own_[0], own_[1]}, 1);
    heads.q = rotated[0];
    heads.k = rotated[1];
    heads.v = parts[1];
    return heads;
  }
  const std::vector<at::Tensor> parts = at::split_with_sizes(qkv, own_, 1);
  heads.q = ops::Rotate(Normal(parts[0], q_norm_), cos, sin, head_dim_);
  heads.k = ops::Rotate(Normal(parts[1], k_norm_), cos, sin, head_dim_);
  heads.v = parts[2];
  return heads;
}

at::Tensor DecoderLayer::CachedAttention(const MicroBatch& batch, const Heads& heads) const {
  const std::vector<int64_t>& ends = batch.cu_seqlens;
  const bool all = split_.row_groups == 1;
  Ranges own;  // whole segments, as CausalRows() has left them
  if (!all) own = heads.parts.rows[static_cast<size_t>(tensor().context.rank)];
  std::vector<at::Tensor> keys, values;
  std::vector<int64_t> own_ends = {0};
  for (size_t s = 0; s + 1 < ends.size(); ++s) {
    const Range segment = {ends[s], ends[s + 1]};
    const auto cut = [&](const at::Tensor& t) {
      return t.narrow(0, segment.begin, segment.size());
    };
    auto [k, v] = batch.decoding->caches[s]->Append(static_cast<size_t>(spec().index), cut(heads.k),
                                                    cut(heads.v));
    if (!all && std::find(own.begin(), own.end(), segment) == own.end()) continue;
    keys.push_back(std::move(k));
    values.push_back(std::move(v));
    own_ends.push_back(own_ends.back() + segment.size());
  }
  if (keys.empty()) return heads.q;
  return ops::CachedAttention(heads.q, keys, values, own_ends, head_dim_);
}

at::Tensor DecoderLayer::OwnAttention(const MicroBatch& batch, const Heads& heads) const {
  if (batch.decoding != nullptr) return CachedAttention(batch, heads);
  if (split_.row_groups == 1)
    return ops::PackedAttention(heads.q, heads.k, heads.v, batch.cu_seqlens, head_dim_);
  const Ranges& own = heads.parts.rows[static_cast<size_t>(tensor().context.rank)];
  return ops::AttentionOfRows(heads.q, heads.k, heads.v, own, batch.cu_seqlens, head_dim_);
}

at::Tensor DecoderLayer::Attention(const MicroBatch& batch, const at::Tensor& x) {
  const Heads heads = RotatedHeads(batch, x);
  const at::Tensor y = OwnAttention(batch, heads);
  const ContextParallel& context = tensor().context;
  if (context.size == 1) return y;
  return ops::ColumnsToRows(y, batch.tokens(), heads.parts, *context.group);
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
