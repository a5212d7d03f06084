#pragma once

#include <string>
#include <vector>

#include "models/spec/model_config.h"

namespace equipoise {

// Models known by name: the published InternVL sizes whose language model has the shape of Qwen2,
// LLaMA or Qwen3, and `quickstart`, about 10 million parameters, made for tiles of 112 pixels.
// Throws ConfigError, with all the names, for another one.
ModelConfig PresetConfig(const std::string& name);

// In ascending size.
std::vector<std::string> PresetNames();

}  // namespace equipoise
