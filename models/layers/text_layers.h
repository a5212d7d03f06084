#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/layers/layer.h"
#include "models/layers/rotary_table.h"
#include "models/ops/context_ranks.h"
#include "models/spec/context_heads.h"
#include "models/spec/model_config.h"

namespace equipoise {

// The token embedding; image features replace the placeholder tokens. Input [image tokens, hidden],
// or undefined without pictures; output [tokens, hidden]. In this file, `tokens` are those of this
// rank where context ranks, and with sequence parallelism tensor ranks, share out rows.
class EmbeddingLayer : public Layer {
 public:
  EmbeddingLayer(const LayerSpec& spec, const TextConfig& config,
                 const TensorParallel& tensor = {});
  at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input, double loss_scale) override;
  Parameter& weight() { return weight_; }

 private:
  at::Tensor OfContext(const MicroBatch& batch, const at::Tensor& input);

  const int64_t padding_id_;
  Parameter& weight_;
};

// A decoder block of LLaMA's form: RMSNorm, causal grouped-query attention with rotary positions
// (and, in some families, RMSNorm of q and k within each head), RMSNorm, SwiGLU; residuals around
// both. Input and output [tokens, hidden].
class DecoderLayer : public Layer {
 public:
  DecoderLayer(const LayerSpec& spec, const TextConfig& config, std::shared_ptr<RotaryTable> rotary,
               const TensorParallel& tensor = {});
  at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input, double loss_scale) override;
  at::Tensor ForwardHalf(Half half, const MicroBatch& batch, const at::Tensor& input) override;

 private:
  at::Tensor Attention(const MicroBatch& batch, const at::Tensor& x);
  // Cuts heads into those of each context rank.
  void ShareOutHeads();
  // Of x [tokens, hidden]: q [rows, heads * head_dim] of `rows`, k and v [all tokens, KV heads *
  // head_dim]; q and k with rotary embedding, and before it normalized within each head where the
  // model has weights for that.
  struct Heads {
    at::Tensor q, k, v;
    ops::AttentionParts parts;  // of context ranks: whose rows and columns q's are
  };
  Heads RotatedHeads(const MicroBatch& batch, const at::Tensor& x);
  // The same where context ranks share out rows too.
  Heads RotatedRows(const MicroBatch& batch, const at::Tensor& qkv);
  at::Tensor Normal(const at::Tensor& heads, Parameter* weight) const;
  at::Tensor CachedAttention(const MicroBatch& batch, const Heads& heads) const;
  // Of q's rows, in the order of q.
  at::Tensor OwnAttention(const MicroBatch& batch, const Heads& heads) const;

  const int64_t head_dim_;
  const double eps_;
  const std::shared_ptr<RotaryTable> rotary_;
  Parameter* attention_norm_;
  ColumnLinears qkv_;
  Parameter* q_norm_;
  Parameter* k_norm_;
  RowLinear out_;
  std::vector<int64_t> widths_;  // columns of q, k and v
  std::vector<int64_t> own_;     // those of them that this rank has in attention
  // With context ranks: how they share out attention, and the columns that each has, of q, k and v
  // side by side, of k and v, and of q or the result.
  ContextSplit split_;
  std::vector<Ranges> qkv_columns_, key_columns_, query_columns_;
  Parameter* mlp_norm_;
  ColumnLinears gate_up_;
  RowLinear down_;
};

}  // namespace equipoise
