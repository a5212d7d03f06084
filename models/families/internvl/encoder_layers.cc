#include "models/families/internvl/encoder_layers.h"

#include "models/families/internvl/projector.h"
#include "models/families/internvl/vision_layers.h"

namespace equipoise {

std::unique_ptr<Layer> MakeInternVlEncoderLayer(const LayerSpec& spec, const ModelConfig& config,
                                                const TensorParallel& tensor) {
  if (spec.kind == "patch_embedding") {
    return std::make_unique<PatchEmbeddingLayer>(spec, config.vision, tensor);
  }
  if (spec.kind == "projector") return std::make_unique<ProjectorLayer>(spec, config, tensor);
  return std::make_unique<VisionLayer>(spec, config.vision, tensor);
}

}  // namespace equipoise
