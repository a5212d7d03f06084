#include "models/families/llava/encoder_layers.h"

#include "models/families/llava/image_settings.h"
#include "models/families/llava/vision_layers.h"

namespace equipoise {

std::unique_ptr<Layer> MakeLlavaEncoderLayer(const LayerSpec& spec, const ModelConfig& config,
                                             const TensorParallel& tensor) {
  if (spec.kind == "patch_embedding") {
    return std::make_unique<ClipEmbeddingLayer>(spec, config.vision, tensor);
  }
  if (spec.kind == "projector") {
    ImageSpec images;
    if (!config.image_grid_pinpoints.empty()) images = LlavaNextImages(config);
    if (config.anyres_max_tiles > 0) images = LlavaOnevisionImages(config);
    return std::make_unique<MlpProjectorLayer>(spec, config.vision, images, tensor);
  }
  if (spec.unused) return std::make_unique<UnusedLayer>(spec, tensor);
  return std::make_unique<ClipBlockLayer>(spec, config.vision, tensor);
}

}  // namespace equipoise
