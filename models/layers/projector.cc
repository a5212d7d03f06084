#include "models/layers/projector.h"

#include <ATen/ops/gelu.h>

#include <cmath>

#include "models/ops/norm.h"
#include "models/ops/patches.h"

namespace equipoise {
namespace {

constexpr double kNormEps = 1e-5;  // not in the configuration

}  // namespace

ProjectorLayer::ProjectorLayer(const std::string& name, const ModelConfig& config,
                               const TensorParallel& tensor)
    : Layer(name, tensor), square_(std::lround(1.0 / config.downsample_ratio)) {
  const int64_t in = config.vision.hidden_size * square_ * square_;
  const int64_t out = config.text.hidden_size;
  const Share inner = ShareWidth(tensor, out, "columns of the projector");
  norm_weight_ = &AddParameter("layer_norm.weight", {in});
  norm_bias_ = &AddParameter("layer_norm.bias", {in});
  linear_1_ = AddColumnLinears({{"linear_1", inner}}, in, /*bias=*/true);
  linear_2_ = AddRowLinear("linear_2", inner, out, /*bias=*/true);
}

at::Tensor ProjectorLayer::Forward(const MicroBatch& /*batch*/, const at::Tensor& input,
                                   double /*loss_scale*/) {
  if (!input.defined()) return {};
  const at::Tensor merged = ops::MergeSquares(input, square_).flatten(0, 1);
  const at::Tensor normal = ops::LayerNorm(merged, *norm_weight_, *norm_bias_, kNormEps);
  return linear_2_(at::gelu(linear_1_(normal)));
}

}  // namespace equipoise
