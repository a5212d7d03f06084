#include "models/families/internvl/projector.h"

#include "models/ops/gelu.h"
#include "models/ops/norm.h"
#include "models/ops/patches.h"

namespace equipoise {
namespace {

constexpr double kNormEps = 1e-5;  // not in the configuration

}  // namespace

ProjectorLayer::ProjectorLayer(const LayerSpec& spec, const ModelConfig& config,
                               const TensorParallel& tensor)
    : Layer(spec, tensor),
      square_(config.shuffle()),
      norm_weight_(Get("layer_norm.weight")),
      norm_bias_(Get("layer_norm.bias")),
      linear_1_(GetColumnLinears({"linear_1"})),
      linear_2_(GetRowLinear("linear_2")) {}

at::Tensor ProjectorLayer::Forward(const MicroBatch& /*batch*/, const at::Tensor& input,
                                   double /*loss_scale*/) {
  if (!input.defined()) return {};
  const at::Tensor merged = ops::MergeSquares(input, square_).flatten(0, 1);
  const at::Tensor normal = ops::LayerNorm(merged, norm_weight_, norm_bias_, kNormEps);
  return linear_2_(ops::Gelu(linear_1_(normal)));
}

}  // namespace equipoise
