#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/families/qwen2_vl/patch_table.h"
#include "models/layers/layer.h"
#include "models/spec/model_config.h"

namespace equipoise {

// The patch embedding: a linear layer over the patches (its weight has the shape of the equivalent
// convolution over frames, rows and columns), and in Qwen3-VL learned positions, interpolated to
// each picture's grid. No input; output [patches, hidden], window by window where the encoder has
// windows.
class NativeEmbeddingLayer : public Layer {
 public:
  NativeEmbeddingLayer(const LayerSpec& spec, const ModelConfig& config,
                       std::shared_ptr<PatchTable> table, const TensorParallel& tensor = {});
  at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input, double loss_scale) override;

 private:
  const int64_t square_;  // patches that become one token
  const std::shared_ptr<PatchTable> table_;
  ops::LinearWeights projection_;
  Parameter* positions_;  // of a square of patches; null: only rotary ones
};

// LayerNorm, or RMSNorm where there is no bias, with the epsilon that all these encoders have.
struct NativeNorm {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;

  at::Tensor operator()(const at::Tensor& x) const;
};

// A block of the encoder: norm, attention with rotary positions of rows and columns, within a
// picture or a window of it; norm, MLP, gated where its weights are; residuals around both. Input
// and output [patches, hidden].
class NativeBlockLayer : public Layer {
 public:
  NativeBlockLayer(const LayerSpec& spec, const ModelConfig& config,
                   std::shared_ptr<PatchTable> table, const TensorParallel& tensor = {});
  at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input, double loss_scale) override;
  at::Tensor ForwardHalf(Half half, const MicroBatch& batch, const at::Tensor& input) override;

 private:
  at::Tensor Attention(const MicroBatch& batch, const at::Tensor& x);
  at::Tensor Activation(const at::Tensor& x) const;

  const int64_t head_dim_;
  const bool windowed_;
  const std::string activation_;
  const std::shared_ptr<PatchTable> table_;
  NativeNorm attention_norm_;
  ColumnLinears qkv_;
  RowLinear out_;
  NativeNorm mlp_norm_;
  ColumnLinears inner_;
  RowLinear outer_;
};

// The mergers, of what the last block gives and of each feature (ActivationSpec::features), one
// behind the other in input and output: a norm, then two linear layers with GELU in between over
// the patches of each square. Input [mergers * patches, vision hidden], output [mergers * image
// tokens, hidden] in the order in which pictures come.
class MergerLayer : public Layer {
 public:
  MergerLayer(const LayerSpec& spec, const ModelConfig& config, std::shared_ptr<PatchTable> table,
              const TensorParallel& tensor = {});
  at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input, double loss_scale) override;

 private:
  struct Merger {
    NativeNorm norm;  // of patches, or of all patches of a square together
    ColumnLinears linear_1;
    RowLinear linear_2;
  };
  at::Tensor Tokens(const Merger& merger, const at::Tensor& patches) const;

  const int64_t width_;  // of a square's patches together
  const std::shared_ptr<PatchTable> table_;
  std::vector<Merger> mergers_;
};

}  // namespace equipoise
