#pragma once

#include "models/families/family.h"

namespace equipoise {

// Qwen3: q and k are normalised within each head (RMSNorm), no biases; head_dim is a size of its
// own.
const DecoderFamily& Qwen3();

}  // namespace equipoise
