#include "models/projector.h"

#include <ATen/ops/gelu.h>

#include <cmath>

#include "models/ops/norm.h"
#include "models/ops/patches.h"

namespace equipoise {
namespace {

constexpr double kNormEps = 1e-5;  // not in the configuration

}  // namespace

ProjectorLayer::ProjectorLayer(const std::string& name, const ModelConfig& config)
    : Layer(name), square_(std::lround(1.0 / config.downsample_ratio)) {
  const int64_t in = config.vision.hidden_size * square_ * square_;
  const int64_t out = config.text.hidden_size;
  norm_weight_ = &AddParameter("layer_norm.weight", {in});
  norm_bias_ = &AddParameter("layer_norm.bias", {in});
  linear_1_ = AddLinears({{"linear_1", out}}, in, /*bias=*/true);
  linear_2_ = AddLinears({{"linear_2", out}}, out, /*bias=*/true);
}

at::Tensor ProjectorLayer::Forward(const MicroBatch& /*batch*/, const at::Tensor& input,
                                   double /*loss_scale*/) {
  if (!input.defined()) return {};
  const at::Tensor merged = ops::MergeSquares(input, square_).flatten(0, 1);
  const at::Tensor normal = ops::LayerNorm(merged, *norm_weight_, *norm_bias_, kNormEps);
  return ops::JoinedLinear(at::gelu(ops::JoinedLinear(normal, linear_1_)), linear_2_);
}

}  // namespace equipoise
