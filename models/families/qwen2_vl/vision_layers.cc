#include "models/families/qwen2_vl/vision_layers.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/split_with_sizes.h>

#include <utility>
#include <vector>

#include "models/families/qwen2_vl/encoder_specs.h"
#include "models/ops/activation.h"
#include "models/ops/attention.h"
#include "models/ops/gelu.h"
#include "models/ops/interpolated_positions.h"
#include "models/ops/norm.h"
#include "models/ops/rotary.h"

namespace equipoise {
namespace {

constexpr double kNormEps = 1e-6;  // not in the configuration

}  // namespace

at::Tensor NativeNorm::operator()(const at::Tensor& x) const {
  return bias == nullptr ? ops::RmsNorm(x, *weight, kNormEps)
                         : ops::LayerNorm(x, *weight, *bias, kNormEps);
}

NativeEmbeddingLayer::NativeEmbeddingLayer(const LayerSpec& spec, const ModelConfig& config,
                                           std::shared_ptr<PatchTable> table,
                                           const TensorParallel& tensor)
    : Layer(spec, tensor),
      square_(config.shuffle() * config.shuffle()),
      table_(std::move(table)),
      projection_{&Get("proj.weight"), Find("proj.bias")},
      positions_(Find("pos_embed.weight")) {}

at::Tensor NativeEmbeddingLayer::Forward(const MicroBatch& batch, const at::Tensor& /*input*/,
                                         double /*loss_scale*/) {
  if (batch.tiles() == 0) return {};
  at::Tensor patches = batch.pixel_values;
  const at::Tensor& order = table_->At(batch, patches.device()).order;
  if (order.defined()) {
    patches = patches.view({-1, square_ * patches.size(1)}).index_select(0, order);
    patches = patches.view(batch.pixel_values.sizes());
  }
  const at::Tensor rows =
      ops::FusedLinear(patches.to(projection_.weight->value.scalar_type()), {projection_});
  if (positions_ == nullptr) return rows;
  return ops::AddInterpolated(rows, table_->At(batch, patches.device()).positions, *positions_);
}

NativeBlockLayer::NativeBlockLayer(const LayerSpec& spec, const ModelConfig& config,
                                   std::shared_ptr<PatchTable> table, const TensorParallel& tensor)
    : Layer(spec, tensor),
      head_dim_(config.vision.hidden_size / config.vision.num_attention_heads),
      windowed_(HasWindows(config.vision, spec.index)),
      activation_(config.vision.hidden_act),
      table_(std::move(table)),
      attention_norm_{&Get("norm1.weight"), Find("norm1.bias")},
      qkv_(GetColumnLinears({"attn.q_proj", "attn.k_proj", "attn.v_proj"})),
      out_(GetRowLinear("attn.proj")),
      mlp_norm_{&Get("norm2.weight"), Find("norm2.bias")},
      inner_(GetColumnLinears(MlpNamesOf(config.vision).inner)),
      outer_(GetRowLinear(MlpNamesOf(config.vision).outer)) {}

at::Tensor NativeBlockLayer::Attention(const MicroBatch& batch, const at::Tensor& x) {
  const int64_t width = qkv_.widths()[0];
  const PatchTable::Entry& table = table_->At(batch, x.device());
  // Queries and keys are adjacent: one rotation.
  const std::vector<at::Tensor> parts = at::split_with_sizes(qkv_(x), {2 * width, width}, 1);
  const std::vector<at::Tensor> rotated =
      at::split_with_sizes(ops::Rotate(parts[0], table.cos, table.sin), {width, width}, 1);
  const PatchLayout& layout = table.layout;
  return ops::PackedAttention(rotated[0], rotated[1], parts[1],
                              windowed_ ? layout.windows : layout.pictures, head_dim_,
                              /*causal=*/false);
}

at::Tensor NativeBlockLayer::Activation(const at::Tensor& x) const {
  if (activation_ == "silu") return ops::SwiGlu(x);
  return ops::Gelu(x, ops::GeluFormOf(activation_));
}

at::Tensor NativeBlockLayer::Forward(const MicroBatch& batch, const at::Tensor& input,
                                     double /*loss_scale*/) {
  return ForwardHalf(Half::kMlp, batch, ForwardHalf(Half::kAttention, batch, input));
}

at::Tensor NativeBlockLayer::ForwardHalf(Half half, const MicroBatch& batch,
                                         const at::Tensor& input) {
  if (!input.defined()) return {};
  if (half == Half::kAttention) return input.add(out_(Attention(batch, attention_norm_(input))));
  return input.add(outer_(Activation(inner_(mlp_norm_(input)))));
}

MergerLayer::MergerLayer(const LayerSpec& spec, const ModelConfig& config,
                         std::shared_ptr<PatchTable> table, const TensorParallel& tensor)
    : Layer(spec, tensor),
      width_(config.vision.hidden_size * config.shuffle() * config.shuffle()),
      table_(std::move(table)) {
  for (const MergerNames& names : MergersOf(config.vision)) {
    mergers_.push_back({{&Get(names.norm + ".weight"), Find(names.norm + ".bias")},
                        GetColumnLinears({names.linear_1}),
                        GetRowLinear(names.linear_2)});
  }
}

at::Tensor MergerLayer::Tokens(const Merger& merger, const at::Tensor& patches) const {
  const bool of_squares = merger.norm.weight->numel() == width_;
  const at::Tensor squares = of_squares ? merger.norm(patches.view({-1, width_}))
                                        : merger.norm(patches).view({-1, width_});
  return merger.linear_2(ops::Gelu(merger.linear_1(squares)));
}

at::Tensor MergerLayer::Forward(const MicroBatch& batch, const at::Tensor& input,
                                double /*loss_scale*/) {
  if (!input.defined()) return {};
  if (mergers_.size() > 1) {  // no windows
    std::vector<at::Tensor> tokens;
    for (const at::Tensor& patches : input.split(input.size(0) / std::ssize(mergers_))) {
      tokens.push_back(Tokens(mergers_[tokens.size()], patches));
    }
    return at::cat(tokens);
  }
  const at::Tensor tokens = Tokens(mergers_.front(), input);
  const at::Tensor& places = table_->At(batch, input.device()).places;
  return places.defined() ? tokens.index_select(0, places) : tokens;
}

}  // namespace equipoise
