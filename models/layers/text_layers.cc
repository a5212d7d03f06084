#include "models/layers/text_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/split_with_sizes.h>

#include <utility>

#include "models/layers/kv_cache.h"
#include "models/ops/activation.h"
#include "models/ops/attention.h"
#include "models/ops/embedding.h"
#include "models/ops/norm.h"
#include "models/ops/rotary.h"

namespace equipoise {

EmbeddingLayer::EmbeddingLayer(const std::string& name, const TextConfig& config,
                               const TensorParallel& tensor)
    : Layer(name, tensor),
      padding_id_(config.pad_token_id),
      weight_(AddPart("weight", {config.vocab_size, config.hidden_size}, 0,
                      ShareUnits(tensor, config.vocab_size, 1, "rows of the vocabulary"))) {}

at::Tensor EmbeddingLayer::Forward(const MicroBatch& batch, const at::Tensor& input,
                                   double /*loss_scale*/) {
  if (batch.tokens() == 0) return {};
  return ops::EmbedAndSplice(batch.input_ids, input, batch.image_positions, weight_,
                             {tensor().group, padding_id_});
}

DecoderLayer::DecoderLayer(const std::string& name, size_t index, const TextConfig& config,
                           std::shared_ptr<RotaryTable> rotary, const TensorParallel& tensor)
    : Layer(name, tensor),
      head_dim_(config.head_dim),
      eps_(config.rms_norm_eps),
      index_(index),
      rotary_(std::move(rotary)) {
  const int64_t hidden = config.hidden_size;
  const auto [q, kv] = ShareHeads(tensor, config.num_attention_heads, config.num_key_value_heads,
                                  head_dim_, "attention heads of the language model");
  const Share inner =
      ShareWidth(tensor, config.intermediate_size, "columns of the language model's MLP");
  // Qwen2 has biases on q, k and v alone, LLaMA's flag speaks of all four.
  const bool out_bias = config.attention_bias && config.model_type != "qwen2";
  attention_norm_ = &AddParameter("input_layernorm.weight", {hidden});
  qkv_ = AddColumnLinears(
      {{"self_attn.q_proj", q}, {"self_attn.k_proj", kv}, {"self_attn.v_proj", kv}}, hidden,
      config.attention_bias);
  out_ = AddRowLinear("self_attn.o_proj", q, hidden, out_bias);
  mlp_norm_ = &AddParameter("post_attention_layernorm.weight", {hidden});
  gate_up_ =
      AddColumnLinears({{"mlp.gate_proj", inner}, {"mlp.up_proj", inner}}, hidden, config.mlp_bias);
  down_ = AddRowLinear("mlp.down_proj", inner, hidden, config.mlp_bias);
}

at::Tensor DecoderLayer::Attention(const MicroBatch& batch, const at::Tensor& x) {
  const std::vector<at::Tensor> qkv = at::split_with_sizes(qkv_(x), qkv_.widths(), 1);
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
  return ForwardHalf(Half::kMlp, batch, ForwardHalf(Half::kAttention, batch, input));
}

at::Tensor DecoderLayer::ForwardHalf(Half half, const MicroBatch& batch, const at::Tensor& input) {
  if (!input.defined()) return {};
  if (half == Half::kAttention) {
    const at::Tensor normal = ops::RmsNorm(input, *attention_norm_, eps_);
    return input + out_(Attention(batch, normal));
  }
  const at::Tensor gate_up = gate_up_(ops::RmsNorm(input, *mlp_norm_, eps_));
  return input + down_(ops::SwiGlu(gate_up));
}

}  // namespace equipoise
