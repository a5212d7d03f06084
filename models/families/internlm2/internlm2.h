#pragma once

#include "models/families/family.h"

namespace equipoise {

// InternLM2: the layers of LLaMA, with q, k and v in one tensor, interleaved by key/value head.
// Transformers has no such class, so folders are in the original naming.
const DecoderFamily& InternLm2();

}  // namespace equipoise
