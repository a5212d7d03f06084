#pragma once

#include <string>

#include "configs/base/json.h"
#include "models/spec/lora.h"
#include "models/spec/model_config.h"

namespace equipoise {

// The description of an adapter in a folder of PEFT. LibTorch-free.

std::string PeftConfigFile(const std::string& folder);
std::string PeftTensorFile(const std::string& folder);

// The adapters that a folder holds for a model: rank, scale and kind from its configuration, the
// layers from the names of its tensors. Throws DataError that begins with the file's path for what
// is not LoRA as described in models/spec/lora.h.
LoraConfig ReadPeftConfig(const std::string& folder, const ModelConfig& model);

// adapter_config.json of the model's adapters, over a base whose path or name is `base`.
Json PeftConfigOf(const ModelConfig& config, const std::string& base);

}  // namespace equipoise
