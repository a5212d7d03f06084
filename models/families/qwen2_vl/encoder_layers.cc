#include "models/families/qwen2_vl/encoder_layers.h"

#include "models/families/qwen2_vl/vision_layers.h"

namespace equipoise {

std::function<std::unique_ptr<Layer>(const LayerSpec& spec, const TensorParallel& tensor)>
Qwen2VlLayerMaker(const ModelConfig& config) {
  const auto table = std::make_shared<PatchTable>(config);
  return [config, table](const LayerSpec& spec,
                         const TensorParallel& tensor) -> std::unique_ptr<Layer> {
    if (spec.kind == "patch_embedding") {
      return std::make_unique<NativeEmbeddingLayer>(spec, config, table, tensor);
    }
    if (spec.kind == "projector") {
      return std::make_unique<MergerLayer>(spec, config, table, tensor);
    }
    return std::make_unique<NativeBlockLayer>(spec, config, table, tensor);
  };
}

}  // namespace equipoise
