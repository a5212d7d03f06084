#pragma once

#include "models/families/family.h"

namespace equipoise {

// Phi-3 and Phi-4: the layers of LLaMA, with q, k and v in one tensor, and gate and up in another.
// Rotary positions may be scaled (longrope) or turn a part of a head alone; windows are as
// Mistral's.
const DecoderFamily& Phi3();

}  // namespace equipoise
