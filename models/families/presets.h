#pragma once

#include <string>
#include <vector>

#include "models/spec/model_config.h"

namespace equipoise {

// Configuration of a model known by name: the published InternVL sizes whose language model has the
// shape of Qwen2, LLaMA or Qwen3, LLaVA, Qwen2-VL, Qwen2.5-VL and Qwen3-VL, and `quickstart`, of
// about 10 million parameters, for tiles of 112 pixels. Throws ConfigError that lists all names for
// another one.
ModelConfig PresetConfig(const std::string& name);

// Names of all presets, in ascending size.
std::vector<std::string> PresetNames();

}  // namespace equipoise
