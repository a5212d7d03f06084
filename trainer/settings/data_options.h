#pragma once

#include <string>

#include "data/records/sample_scanner.h"
#include "models/spec/model_config.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// The tokenizer that the configuration names: data.tokenizer, or the model's folder. Throws
// ConfigError when there is neither.
std::string TokenizerPath(const RunConfig& config);

// Settings on which the model's input depends besides records and pictures.
SampleOptions SampleOptionsOf(const DataConfig& data, const ModelConfig& model);

}  // namespace equipoise
