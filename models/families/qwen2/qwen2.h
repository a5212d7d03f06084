#pragma once

#include "models/families/family.h"

namespace equipoise {

// Qwen2 and Qwen2.5: biases on q, k and v.
const DecoderFamily& Qwen2();

}  // namespace equipoise
