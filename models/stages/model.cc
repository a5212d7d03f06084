#include "models/stages/model.h"

#include "models/families/families.h"
#include "models/families/make_layer.h"
#include "models/ops/fp8_product.h"

namespace equipoise {

std::vector<std::unique_ptr<Layer>> BuildLayers(const ModelConfig& config, LayerRange range,
                                                const TensorParallel& tensor) {
  const std::vector<LayerSpec> specs = LayerSpecs(config);
  LayerMaker maker(config, tensor);
  std::vector<std::unique_ptr<Layer>> layers;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (range.Holds(static_cast<int>(i))) layers.push_back(maker.Make(specs[i]));
  }
  return layers;
}

void UseFp8(std::vector<std::unique_ptr<Layer>>& layers) {
  for (const std::unique_ptr<Layer>& layer : layers) {
    if (!layer->spec().has_halves) continue;
    for (Parameter* parameter : layer->parameters()) {
      parameter->fp8 = !parameter->packs && parameter->role != ParameterRole::kAdapter &&
                       ops::SuitsFp8(parameter->shape);
    }
  }
}

void Freeze(std::vector<std::unique_ptr<Layer>>& layers, const std::vector<std::string>& modules) {
  for (const std::unique_ptr<Layer>& layer : layers) {
    if (IsTrained(layer->spec(), modules)) continue;
    for (Parameter* parameter : layer->parameters()) parameter->trainable = false;
  }
}

}  // namespace equipoise
