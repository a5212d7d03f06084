#pragma once

#include "configs/base/json.h"

namespace equipoise::testing {

// The config.json of tiny models: of Transformers 5 and 4, and of OpenGVLab's code.
Json Qwen2();
Json Llama();
Json InternVl();
Json Llava();
Json OpenGvLab();

}  // namespace equipoise::testing
