#include "models/layers/vision_layers.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/split_with_sizes.h>

#include "models/ops/activation.h"
#include "models/ops/attention.h"
#include "models/ops/embedding.h"
#include "models/ops/norm.h"
#include "models/ops/patches.h"
#include "models/ops/split_norm.h"

namespace equipoise {

PatchEmbeddingLayer::PatchEmbeddingLayer(const std::string& name, const VisionConfig& config,
                                         const TensorParallel& tensor)
    : Layer(name, tensor), patch_size_(config.patch_size) {
  const int64_t hidden = config.hidden_size;
  token_ = &AddParameter("cls_token", {1, 1, hidden});
  projection_.weight = &AddParameter("patch_embeddings.projection.weight",
                                     {hidden, config.num_channels, patch_size_, patch_size_});
  projection_.bias = &AddParameter("patch_embeddings.projection.bias", {hidden});
  positions_ = &AddParameter("position_embeddings", {1, config.patches() + 1, hidden});
}

at::Tensor PatchEmbeddingLayer::Forward(const MicroBatch& batch, const at::Tensor& /*input*/,
                                        double /*loss_scale*/) {
  if (batch.tiles() == 0) return {};
  const at::Tensor patches =
      ops::CutIntoPatches(batch.pixel_values, patch_size_, projection_.weight->value.scalar_type());
  return ops::AddClassAndPositions(ops::FusedLinear(patches, {projection_}), *token_, *positions_);
}

VisionLayer::VisionLayer(const std::string& name, const VisionConfig& config,
                         const TensorParallel& tensor)
    : Layer(name, tensor),
      head_dim_(config.hidden_size / config.num_attention_heads),
      eps_(config.layer_norm_eps),
      qk_norm_eps_(config.qk_norm_eps) {
  const int64_t hidden = config.hidden_size;
  const Share heads = ShareHeads(tensor, config.num_attention_heads, config.num_attention_heads,
                                 head_dim_, "attention heads of the vision model")
                          .query;
  const Share inner =
      ShareWidth(tensor, config.intermediate_size, "columns of the vision model's MLP");
  attention_norm_ = AddNorm("layernorm_before", config);
  qkv_ = AddColumnLinears(
      {{"attention.q_proj", heads}, {"attention.k_proj", heads}, {"attention.v_proj", heads}},
      hidden, config.attention_bias);
  if (config.use_qk_norm) {
    q_norm_ = &AddPart("attention.q_norm.weight", {hidden}, 0, heads);
    k_norm_ = &AddPart("attention.k_norm.weight", {hidden}, 0, heads);
  }
  out_ = AddRowLinear("attention.projection_layer", heads, hidden, /*bias=*/true);
  attention_scale_ = &AddParameter("lambda_1", {hidden});
  mlp_norm_ = AddNorm("layernorm_after", config);
  fc1_ = AddColumnLinears({{"mlp.fc1", inner}}, hidden, /*bias=*/true);
  fc2_ = AddRowLinear("mlp.fc2", inner, hidden, /*bias=*/true);
  mlp_scale_ = &AddParameter("lambda_2", {hidden});
}

VisionLayer::Norm VisionLayer::AddNorm(const std::string& name, const VisionConfig& config) {
  Norm norm;
  norm.weight = &AddParameter(name + ".weight", {config.hidden_size});
  if (config.norm_type != "rms_norm") {
    norm.bias = &AddParameter(name + ".bias", {config.hidden_size});
  }
  return norm;
}

at::Tensor VisionLayer::Apply(const Norm& norm, const at::Tensor& x) const {
  return norm.bias == nullptr ? ops::RmsNorm(x, *norm.weight, eps_)
                              : ops::LayerNorm(x, *norm.weight, *norm.bias, eps_);
}

at::Tensor VisionLayer::Attention(const at::Tensor& x) const {
  const std::vector<at::Tensor> qkv = at::split_with_sizes(qkv_(x), qkv_.widths(), -1);
  if (q_norm_ == nullptr) return out_(ops::FullAttention(qkv[0], qkv[1], qkv[2], head_dim_));
  if (tensor().group == nullptr) {
    return out_(ops::FullAttention(ops::RmsNorm(qkv[0], *q_norm_, qk_norm_eps_),
                                   ops::RmsNorm(qkv[1], *k_norm_, qk_norm_eps_), qkv[2],
                                   head_dim_));
  }
  const std::vector<at::Tensor> qk = ops::TensorParallelRmsNorm(
      {qkv[0], qkv[1]}, {q_norm_, k_norm_}, qk_norm_eps_, tensor().group);
  return out_(ops::FullAttention(qk[0], qk[1], qkv[2], head_dim_));
}

at::Tensor VisionLayer::Forward(const MicroBatch& batch, const at::Tensor& input,
                                double /*loss_scale*/) {
  return ForwardHalf(Half::kMlp, batch, ForwardHalf(Half::kAttention, batch, input));
}

at::Tensor VisionLayer::ForwardHalf(Half half, const MicroBatch& /*batch*/,
                                    const at::Tensor& input) {
  if (!input.defined()) return {};
  if (half == Half::kAttention) {
    return ops::ScaledResidual(input, Attention(Apply(attention_norm_, input)), *attention_scale_);
  }
  const at::Tensor inner = at::gelu(fc1_(Apply(mlp_norm_, input)));
  return ops::ScaledResidual(input, fc2_(inner), *mlp_scale_);
}

}  // namespace equipoise
