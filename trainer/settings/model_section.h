#pragma once

#include "models/spec/model_config.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// The configuration of the model given by `model.hf` or `model.preset`; no weights are read. Throws
// ConfigError when none or both are given, and as ReadModelConfig() does.
ModelConfig ModelConfigOf(const ModelSection& model);

}  // namespace equipoise
