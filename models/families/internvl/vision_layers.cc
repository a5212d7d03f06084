#include "models/families/internvl/vision_layers.h"

#include <ATen/ops/split_with_sizes.h>

#include <algorithm>

#include "models/ops/activation.h"
#include "models/ops/attention.h"
#include "models/ops/dropout.h"
#include "models/ops/embedding.h"
#include "models/ops/gelu.h"
#include "models/ops/norm.h"
#include "models/ops/patches.h"
#include "models/ops/split_norm.h"

namespace equipoise {

PatchEmbeddingLayer::PatchEmbeddingLayer(const LayerSpec& spec, const VisionConfig& config,
                                         const TensorParallel& tensor)
    : Layer(spec, tensor),
      patch_size_(config.patch_size),
      token_(Get("cls_token")),
      projection_{&Get("patch_embeddings.projection.weight"),
                  &Get("patch_embeddings.projection.bias")},
      positions_(Get("position_embeddings")) {}

at::Tensor PatchEmbeddingLayer::Forward(const MicroBatch& batch, const at::Tensor& /*input*/,
                                        double /*loss_scale*/) {
  if (batch.tiles() == 0) return {};
  const at::Tensor patches =
      ops::CutIntoPatches(batch.pixel_values, patch_size_, projection_.weight->value.scalar_type());
  return ops::AddClassAndPositions(ops::FusedLinear(patches, {projection_}), &token_, positions_);
}

VisionLayer::VisionLayer(const LayerSpec& spec, const VisionConfig& config,
                         const TensorParallel& tensor)
    : Layer(spec, tensor),
      head_dim_(config.hidden_size / config.num_attention_heads),
      eps_(config.layer_norm_eps),
      qk_norm_eps_(config.qk_norm_eps),
      drop_path_(config.drop_path_rate * static_cast<double>(spec.index) /
                 static_cast<double>(std::max<int64_t>(config.num_hidden_layers - 1, 1))),
      attention_norm_(GetNorm("layernorm_before")),
      qkv_(GetColumnLinears({"attention.q_proj", "attention.k_proj", "attention.v_proj"})),
      q_norm_(Find("attention.q_norm.weight")),
      k_norm_(Find("attention.k_norm.weight")),
      out_(GetRowLinear("attention.projection_layer")),
      attention_scale_(Get("lambda_1")),
      mlp_norm_(GetNorm("layernorm_after")),
      fc1_(GetColumnLinears({"mlp.fc1"})),
      fc2_(GetRowLinear("mlp.fc2")),
      mlp_scale_(Get("lambda_2")) {}

VisionLayer::Norm VisionLayer::GetNorm(const std::string& name) const {
  return {&Get(name + ".weight"), Find(name + ".bias")};
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

at::Tensor VisionLayer::WithDropPath(const at::Tensor& x, const char* half) const {
  if (drop_path_ == 0 || noise == 0 || !trainable()) return x;
  return ops::DropPath(x, drop_path_, {noise, name() + "." + half});
}

at::Tensor VisionLayer::Forward(const MicroBatch& batch, const at::Tensor& input,
                                double /*loss_scale*/) {
  return ForwardHalf(Half::kMlp, batch, ForwardHalf(Half::kAttention, batch, input));
}

at::Tensor VisionLayer::ForwardHalf(Half half, const MicroBatch& /*batch*/,
                                    const at::Tensor& input) {
  if (!input.defined()) return {};
  if (half == Half::kAttention) {
    const at::Tensor attended = Attention(Apply(attention_norm_, input));
    return ops::ScaledResidual(input, WithDropPath(attended, "attention"), attention_scale_);
  }
  const at::Tensor inner = ops::Gelu(fc1_(Apply(mlp_norm_, input)));
  return ops::ScaledResidual(input, WithDropPath(fc2_(inner), "mlp"), mlp_scale_);
}

}  // namespace equipoise
