#pragma once

#include "models/families/family.h"

namespace equipoise {

// Qwen2-VL (arXiv 2409.12191) and Qwen2.5-VL (arXiv 2502.13923): an encoder that takes pictures at
// about their own size, a merger of neighbouring patches, and Qwen2 with multimodal positions.
const EncoderFamily& Qwen2Vl();

}  // namespace equipoise
