#pragma once

#include "models/spec/model_config.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// The model that `model.hf` or `model.preset` describes; no weights are read. Throws ConfigError
// where none or both are given, and what reading config.json throws.
ModelConfig ModelConfigOf(const ModelSection& model);

}  // namespace equipoise
