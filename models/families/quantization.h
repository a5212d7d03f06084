#pragma once

#include "models/spec/config_section.h"
#include "models/spec/lora.h"

namespace equipoise {

// The form of a folder's weights by `quantization_config` of its config.json, as AutoGPTQ,
// GPTQModel and Transformers write it: GPTQ of 4 bits, of the language model's linear layers; or
// none where the key is absent. Throws DataError for other forms. LibTorch-free.
QuantizeConfig ParseQuantization(const ConfigSection& top);

}  // namespace equipoise
