#pragma once

#include <string>

#include "models/spec/model_config.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// Writes the small files that describe a model from parts (model.vision and model.llm), all but
// config.json: those of the language model's folder, the tokens for pictures added to its
// tokenizer, and the settings by which Transformers prepares pictures for the encoder. `config` is
// the joined model's. Throws DataError as Tokenizer::Read(), and RunError when a file cannot be
// written.
void WritePartsDescription(const ModelSection& model, const ModelConfig& config,
                           const std::string& to);

}  // namespace equipoise
