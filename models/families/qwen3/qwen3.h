#pragma once

#include "models/families/family.h"

namespace equipoise {

// Qwen3: RMSNorm of q and k within each head; biases of attention by a flag, off by default;
// head_dim is a key of its own.
const DecoderFamily& Qwen3();

}  // namespace equipoise
