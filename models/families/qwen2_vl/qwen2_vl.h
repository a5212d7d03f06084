#pragma once

#include "models/families/family.h"

namespace equipoise {

// Qwen2-VL (arXiv 2409.12191), Qwen2.5-VL (arXiv 2502.13923) and Qwen3-VL (arXiv 2511.21631): an
// encoder that takes pictures at about their own size, a merger of neighbouring patches, and Qwen2
// or Qwen3 with multimodal positions; in Qwen3-VL outputs of blocks within the encoder too, which
// are added to rows of the language model's first layers.
const EncoderFamily& Qwen2Vl();

}  // namespace equipoise
