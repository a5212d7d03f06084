#pragma once

#include <string>

#include "data/records/sample_scanner.h"
#include "models/spec/model_config.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// The path of the tokenizer: data.tokenizer, else the model's folder. Throws ConfigError when the
// configuration has neither.
std::string TokenizerPath(const RunConfig& config);

// The settings, besides records and pictures, on which the model's input depends.
SampleOptions SampleOptionsOf(const DataConfig& data, const ModelConfig& model);

}  // namespace equipoise
