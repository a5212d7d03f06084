#pragma once

#include "models/families/family.h"

namespace equipoise {

// InternLM2, LLaMA in other words: q, k and v in one tensor, interleaved by key/value head. Known
// to its own code alone (Transformers has no such class), so folders are in the original naming.
const DecoderFamily& InternLm2();

}  // namespace equipoise
