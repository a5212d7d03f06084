#pragma once

#include "models/spec/image_spec.h"
#include "models/spec/model_config.h"

namespace equipoise {

// The image input of Qwen2-VL and its successors: as the folder's image processor says, with its
// class's defaults. Throws DataError that names the key for what is not supported.
ImageSpec Qwen2VlImages(const ModelConfig& config);

}  // namespace equipoise
