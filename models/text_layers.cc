#include "models/text_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/split_with_sizes.h>

#include <utility>

#include "models/kv_cache.h"
#include "models/ops/activation.h"
#include "models/ops/attention.h"
#include "models/ops/embedding.h"
#include "models/ops/norm.h"
#include "models/ops/rotary.h"

namespace equipoise {

EmbeddingLayer::EmbeddingLayer(const std::string& name, const TextConfig& config)
    : Layer(name), weight_(AddParameter("weight", {config.vocab_size, config.hidden_size})) {}

at::Tensor EmbeddingLayer::Forward(const MicroBatch& batch, const at::Tensor& input,
                                   double /*loss_scale*/) {
  if (batch.tokens() == 0) return {};
  return ops::EmbedAndSplice(batch.input_ids, input, batch.image_positions, weight_);
}

DecoderLayer::DecoderLayer(const std::string& name, size_t index, const TextConfig& config,
                           std::shared_ptr<RotaryTable> rotary)
    : Layer(name),
      head_dim_(config.head_dim),
      eps_(config.rms_norm_eps),
      index_(index),
      rotary_(std::move(rotary)) {
  const int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  const int64_t q = config.num_attention_heads * head_dim_;
  const int64_t kv = config.num_key_value_heads * head_dim_;
  // Qwen2 has biases on q, k and v alone, LLaMA's flag speaks of all four.
  const bool out_bias = config.attention_bias && config.model_type != "qwen2";
  attention_norm_ = &AddParameter("input_layernorm.weight", {hidden});
  qkv_ = AddLinears({{"self_attn.q_proj", q}, {"self_attn.k_proj", kv}, {"self_attn.v_proj", kv}},
                    hidden, config.attention_bias);
  out_ = AddLinears({{"self_attn.o_proj", hidden}}, q, out_bias);
  mlp_norm_ = &AddParameter("post_attention_layernorm.weight", {hidden});
  gate_up_ =
      AddLinears({{"mlp.gate_proj", inner}, {"mlp.up_proj", inner}}, hidden, config.mlp_bias);
  down_ = AddLinears({{"mlp.down_proj", hidden}}, inner, config.mlp_bias);
}

at::Tensor DecoderLayer::Attention(const MicroBatch& batch, const at::Tensor& x) {
  const int64_t kv = qkv_[1].weight->shape[0];
  const std::vector<at::Tensor> qkv =
      at::split_with_sizes(ops::JoinedLinear(x, qkv_), {qkv_[0].weight->shape[0], kv, kv}, 1);
  const RotaryTable::Angles& angles = rotary_->At(batch.position_ids);
  const at::Tensor q = ops::Rotate(qkv[0], angles.cos, angles.sin);
  const at::Tensor k = ops::Rotate(qkv[1], angles.cos, angles.sin);
  if (batch.cache != nullptr) {
    const auto [keys, values] = batch.cache->Append(index_, k, qkv[2]);
    return ops::CachedAttention(q, keys, values, head_dim_);
  }
  return ops::PackedAttention(q, k, qkv[2], batch.cu_seqlens, head_dim_);
}

at::Tensor DecoderLayer::Forward(const MicroBatch& batch, const at::Tensor& input,
                                 double /*loss_scale*/) {
  if (!input.defined()) return {};
  const at::Tensor normal = ops::RmsNorm(input, *attention_norm_, eps_);
  const at::Tensor x = input + ops::JoinedLinear(Attention(batch, normal), out_);
  const at::Tensor gate_up = ops::JoinedLinear(ops::RmsNorm(x, *mlp_norm_, eps_), gate_up_);
  return x + ops::JoinedLinear(ops::SwiGlu(gate_up), down_);
}

}  // namespace equipoise
