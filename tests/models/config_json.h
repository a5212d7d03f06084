#pragma once

#include <string>

#include "configs/base/json.h"
#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"

namespace equipoise::testing {

// The config.json of tiny models: of Transformers 5 and 4, and of OpenGVLab's code.
Json Qwen2();
Json Llama();
Json InternVl();
Json Llava();
Json OpenGvLab();

// What ParseModelConfig() says of a config.json that it refuses, which begins with the file's name
// (checked); else "".
std::string Refusal(const Json& json);

// The layer between encoder and language model. REQUIRES: there is one.
LayerSpec ProjectorOf(const ModelConfig& config);

}  // namespace equipoise::testing
