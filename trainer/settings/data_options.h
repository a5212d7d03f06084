#pragma once

#include <string>

#include "data/records/sample_scanner.h"
#include "data/text/chat_template.h"
#include "data/text/tokenizer.h"
#include "models/spec/model_config.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// The path of the tokenizer: data.tokenizer, else the model's folder, or that of its language
// model. Throws ConfigError when the configuration has neither, and for data.tokenizer beside
// model.llm.
std::string TokenizerPath(const RunConfig& config);

// Reads it; a model from parts adds the tokens that it needs for pictures. Added tokens that the
// embedding of `model` has no rows for are left out.
Tokenizer ReadTokenizer(const RunConfig& config, const ModelConfig& model);

ChatOptions ChatOptionsOf(const DataConfig& data);

// The settings, besides records and pictures, on which the model's input depends.
SampleOptions SampleOptionsOf(const DataConfig& data, const ModelConfig& model);

}  // namespace equipoise
