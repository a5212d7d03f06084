#pragma once

#include "models/spec/image_spec.h"
#include "models/spec/model_config.h"

namespace equipoise {

// The pictures of a LLaVA: one square each, as the folder's image processor makes it. Where there
// is none, CLIP's are padded to a square, as LLaVA-1.5 was trained, and SigLIP's are stretched to
// one. Throws DataError (`image processor: key: what; what to do`) for settings that cannot be
// followed.
ImageSpec LlavaImages(const ModelConfig& config);

// The pictures of a LLaVA-NeXT, in the resolutions of its config.json, which the folder's image
// processor must have too. Throws as LlavaImages().
ImageSpec LlavaNextImages(const ModelConfig& config);

// The same of a LLaVA-OneVision, whose pictures may be one square each, and which takes videos.
// Without a mean in the folder's image processor it is CLIP's, as in Transformers; without a
// processor SigLIP's, which published folders have. Its video processor must make frames of the
// encoder's size with the same mean and deviation. Throws as LlavaImages(), for that one
// `video processor: ...`.
ImageSpec LlavaOnevisionImages(const ModelConfig& config);

}  // namespace equipoise
