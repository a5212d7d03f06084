#pragma once

#include <string>
#include <vector>

#include "models/layers/layer.h"
#include "models/spec/model_config.h"

namespace equipoise {

// The patch embedding: a linear layer over the patches of the micro-batch's tiles (its weight has
// the shape of the equivalent convolution), class token, positions. No input; output
// [tiles, patches + 1, hidden].
class PatchEmbeddingLayer : public Layer {
 public:
  PatchEmbeddingLayer(const LayerSpec& spec, const VisionConfig& config,
                      const TensorParallel& tensor = {});
  at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input, double loss_scale) override;

 private:
  const int64_t patch_size_;
  Parameter& token_;
  ops::LinearWeights projection_;
  Parameter& positions_;
};

// A block of InternViT: norm, attention within a tile, layer scale; norm, MLP with exact GELU,
// layer scale; residuals around both. Input and output [tiles, patches + 1, hidden]. Where the
// block is trained, a tile skips a half with the probability of the block
// (VisionConfig::drop_path_rate).
class VisionLayer : public Layer {
 public:
  VisionLayer(const LayerSpec& spec, const VisionConfig& config, const TensorParallel& tensor = {});
  at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input, double loss_scale) override;
  at::Tensor ForwardHalf(Half half, const MicroBatch& batch, const at::Tensor& input) override;

 private:
  // LayerNorm, or RMSNorm where there is no bias.
  struct Norm {
    Parameter* weight = nullptr;
    Parameter* bias = nullptr;
  };
  Norm GetNorm(const std::string& name) const;
  at::Tensor Apply(const Norm& norm, const at::Tensor& x) const;
  at::Tensor Attention(const at::Tensor& x) const;
  // What a half adds to its input; in training a share of the tiles leaves it out.
  at::Tensor WithDropPath(const at::Tensor& x, const char* half) const;

  const int64_t head_dim_;
  const double eps_, qk_norm_eps_;
  const double drop_path_;  // grows from 0 in the first block to the whole rate in the last
  Norm attention_norm_;
  ColumnLinears qkv_;
  Parameter* q_norm_;
  Parameter* k_norm_;
  RowLinear out_;
  Parameter& attention_scale_;
  Norm mlp_norm_;
  ColumnLinears fc1_;
  RowLinear fc2_;
  Parameter& mlp_scale_;
};

}  // namespace equipoise
