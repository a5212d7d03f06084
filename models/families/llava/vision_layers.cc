#include "models/families/llava/vision_layers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/split_with_sizes.h>

#include <algorithm>
#include <vector>

#include "models/families/llava/encoder_specs.h"
#include "models/ops/attention.h"
#include "models/ops/embedding.h"
#include "models/ops/gelu.h"
#include "models/ops/norm.h"
#include "models/ops/patches.h"
#include "models/spec/any_resolution.h"
#include "parallel/device.h"

namespace equipoise {
namespace {

// An int64 tensor of indices on a device.
at::Tensor IndexOn(const std::vector<int64_t>& indices, at::Device device) {
  at::Tensor tensor = at::empty({std::ssize(indices)}, at::kLong);
  std::copy(indices.begin(), indices.end(), tensor.mutable_data_ptr<int64_t>());
  return ToDevice(tensor, device);
}

// Tokens made of rows `x`: one each, or the weighted sum of four, rounded once. As no row comes
// twice in one of the four, gradients are summed in one order on every device.
at::Tensor TokensOf(const at::Tensor& x, const TokenRows& tokens) {
  const at::Tensor single = x.index_select(0, IndexOn(tokens.rows, x.device()));
  if (tokens.blended.empty()) return single;
  at::Tensor sum;
  for (size_t i = 0; i < tokens.corners.size(); ++i) {
    at::Tensor weights = at::empty({std::ssize(tokens.blended), 1}, at::kFloat);
    std::copy(tokens.weights[i].begin(), tokens.weights[i].end(),
              weights.mutable_data_ptr<float>());
    const at::Tensor part = x.index_select(0, IndexOn(tokens.corners[i], x.device()))
                                .to(at::kFloat)
                                .mul(ToDevice(weights, x.device()));
    sum = i == 0 ? part : sum.add(part);
  }
  return single.index_copy(0, IndexOn(tokens.blended, x.device()), sum.to(x.scalar_type()));
}

}  // namespace

ClipEmbeddingLayer::ClipEmbeddingLayer(const LayerSpec& spec, const VisionConfig& config,
                                       const TensorParallel& tensor)
    : Layer(spec, tensor),
      patch_size_(config.patch_size),
      eps_(config.layer_norm_eps),
      token_(Find("class_embedding")),
      projection_{&Get("patch_embedding.weight"), Find("patch_embedding.bias")},
      positions_(Get("position_embedding.weight")),
      norm_weight_(Find("pre_layrnorm.weight")),
      norm_bias_(Find("pre_layrnorm.bias")) {}

at::Tensor ClipEmbeddingLayer::Forward(const MicroBatch& batch, const at::Tensor& /*input*/,
                                       double /*loss_scale*/) {
  if (batch.tiles() == 0) return {};
  const at::Tensor patches =
      ops::CutIntoPatches(batch.pixel_values, patch_size_, projection_.weight->value.scalar_type());
  const at::Tensor rows =
      ops::AddClassAndPositions(ops::FusedLinear(patches, {projection_}), token_, positions_);
  return norm_weight_ == nullptr ? rows : ops::LayerNorm(rows, *norm_weight_, *norm_bias_, eps_);
}

ClipBlockLayer::ClipBlockLayer(const LayerSpec& spec, const VisionConfig& config,
                               const TensorParallel& tensor)
    : Layer(spec, tensor),
      head_dim_(config.hidden_size / config.num_attention_heads),
      eps_(config.layer_norm_eps),
      activation_(config.hidden_act),
      attention_norm_(GetNorm("layer_norm1")),
      qkv_(GetColumnLinears({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})),
      out_(GetRowLinear("self_attn.out_proj")),
      mlp_norm_(GetNorm("layer_norm2")),
      fc1_(GetColumnLinears({"mlp.fc1"})),
      fc2_(GetRowLinear("mlp.fc2")) {}

ClipBlockLayer::Norm ClipBlockLayer::GetNorm(const std::string& name) const {
  return {Get(name + ".weight"), Get(name + ".bias")};
}

at::Tensor ClipBlockLayer::Apply(const Norm& norm, const at::Tensor& x) const {
  return ops::LayerNorm(x, norm.weight, norm.bias, eps_);
}

at::Tensor ClipBlockLayer::Activation(const at::Tensor& x) const {
  return ops::Gelu(x, ops::GeluFormOf(activation_));
}

at::Tensor ClipBlockLayer::Forward(const MicroBatch& batch, const at::Tensor& input,
                                   double /*loss_scale*/) {
  return ForwardHalf(Half::kMlp, batch, ForwardHalf(Half::kAttention, batch, input));
}

at::Tensor ClipBlockLayer::ForwardHalf(Half half, const MicroBatch& /*batch*/,
                                       const at::Tensor& input) {
  if (!input.defined()) return {};
  if (half == Half::kAttention) {
    const std::vector<at::Tensor> qkv =
        at::split_with_sizes(qkv_(Apply(attention_norm_, input)), qkv_.widths(), -1);
    return input.add(out_(ops::FullAttention(qkv[0], qkv[1], qkv[2], head_dim_)));
  }
  return input.add(fc2_(Activation(fc1_(Apply(mlp_norm_, input)))));
}

at::Tensor UnusedLayer::Forward(const MicroBatch& /*batch*/, const at::Tensor& input,
                                double /*loss_scale*/) {
  return input;
}

MlpProjectorLayer::MlpProjectorLayer(const LayerSpec& spec, const VisionConfig& config,
                                     const ImageSpec& images, const TensorParallel& tensor)
    : Layer(spec, tensor),
      class_token_(config.class_token),
      images_(images),
      newline_(Find(kImageNewline)),
      linear_1_(GetColumnLinears({"linear_1"})),
      linear_2_(GetRowLinear("linear_2")) {}

at::Tensor MlpProjectorLayer::Project(const at::Tensor& rows) const {
  return linear_2_(ops::Gelu(linear_1_(rows)));
}

// The projector takes each row by itself, so that rows can be chosen before it. In the place of the
// vectors it is given rows whose results are not used: all its costs go with the tokens. Blended
// rows are made of its results, so that there it is given all.
at::Tensor MlpProjectorLayer::AnyResolution(const MicroBatch& batch, const at::Tensor& input) {
  const TokenRows tokens = TokenRowsOf(images_, GridsOf(batch));
  const at::Tensor newlines = IndexOn(tokens.newlines, input.device());
  const at::Tensor all = input.flatten(0, 1);
  if (images_.max_tiles > 0) {
    return ops::PutVector(TokensOf(Project(all), tokens), newlines, *newline_);
  }
  const at::Tensor rows = all.index_select(0, IndexOn(tokens.rows, input.device()));
  return ops::PutVector(Project(rows), newlines, *newline_);
}

at::Tensor MlpProjectorLayer::Forward(const MicroBatch& batch, const at::Tensor& input,
                                      double /*loss_scale*/) {
  if (!input.defined()) return {};
  if (newline_ != nullptr) return AnyResolution(batch, input);
  const at::Tensor patches = class_token_ ? ops::MergeSquares(input, 1) : input;
  return Project(patches.flatten(0, 1));
}

}  // namespace equipoise
