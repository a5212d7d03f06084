#pragma once

#include <string>

#include "data/text/chat_template.h"
#include "data/text/tokenizer.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Throws ConfigError, which begins with `source`, for a tokenizer that is not the model's: a token
// id that the embedding has no row for would end the run at the first row that meets it.
void CheckVocabulary(const std::string& source, const ModelConfig& model,
                     const Tokenizer& tokenizer, const ChatTemplate& chat_template);

}  // namespace equipoise
