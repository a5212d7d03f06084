#pragma once

#include <string>

#include "models/layers/layer.h"
#include "models/spec/image_spec.h"
#include "models/spec/model_config.h"

namespace equipoise {

// The patch embedding of CLIP (class token, positions and a LayerNorm) or SigLIP (a bias and
// positions). No input; output [tiles, rows, hidden].
class ClipEmbeddingLayer : public Layer {
 public:
  ClipEmbeddingLayer(const LayerSpec& spec, const VisionConfig& config,
                     const TensorParallel& tensor = {});
  at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input, double loss_scale) override;

 private:
  const int64_t patch_size_;
  const double eps_;
  Parameter* token_;
  ops::LinearWeights projection_;
  Parameter& positions_;
  Parameter* norm_weight_;
  Parameter* norm_bias_;
};

// A block of CLIP or SigLIP: LayerNorm, attention within a picture; LayerNorm, MLP; residuals
// around both. Input and output [tiles, rows, hidden].
class ClipBlockLayer : public Layer {
 public:
  ClipBlockLayer(const LayerSpec& spec, const VisionConfig& config,
                 const TensorParallel& tensor = {});
  at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input, double loss_scale) override;
  at::Tensor ForwardHalf(Half half, const MicroBatch& batch, const at::Tensor& input) override;

 private:
  struct Norm {
    Parameter& weight;
    Parameter& bias;
  };
  Norm GetNorm(const std::string& name) const;
  at::Tensor Apply(const Norm& norm, const at::Tensor& x) const;
  at::Tensor Activation(const at::Tensor& x) const;

  const int64_t head_dim_;
  const double eps_;
  const std::string activation_;
  Norm attention_norm_;
  ColumnLinears qkv_;
  RowLinear out_;
  Norm mlp_norm_;
  ColumnLinears fc1_;
  RowLinear fc2_;
};

// Weights that take no part in the computation. Its output is its input.
class UnusedLayer : public Layer {
 public:
  using Layer::Layer;
  at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input, double loss_scale) override;
};

// The projector: two linear layers with GELU in between. Input [tiles, rows, vision hidden], of
// which a class token is dropped, output [image tokens, hidden]. Of pictures of any resolution
// (models/spec/any_resolution.h) it takes the rows that become tokens alone, and puts a trained
// vector behind each row of patches, or behind a video. Where patches may be brought down
// (ImageSpec::max_tiles) it takes all rows, since they are blended behind it.
class MlpProjectorLayer : public Layer {
 public:
  MlpProjectorLayer(const LayerSpec& spec, const VisionConfig& config, const ImageSpec& images,
                    const TensorParallel& tensor = {});
  at::Tensor Forward(const MicroBatch& batch, const at::Tensor& input, double loss_scale) override;

 private:
  at::Tensor Project(const at::Tensor& rows) const;
  at::Tensor AnyResolution(const MicroBatch& batch, const at::Tensor& input);

  const bool class_token_;
  const ImageSpec images_;
  Parameter* newline_;  // null: a picture is one tile
  ColumnLinears linear_1_;
  RowLinear linear_2_;
};

}  // namespace equipoise
