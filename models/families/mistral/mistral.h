#pragma once

#include "models/families/family.h"

namespace equipoise {

// Mistral: LLaMA's form without biases. Attention in a sliding window is not computed; a window
// that no position is outside of is full attention.
const DecoderFamily& Mistral();

}  // namespace equipoise
