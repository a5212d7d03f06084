#pragma once

#include "models/families/family.h"

namespace equipoise {

// LLaMA, and models of its form: biases on all linears or none, by two flags.
const DecoderFamily& Llama();

}  // namespace equipoise
