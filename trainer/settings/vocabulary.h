#pragma once

#include <string>

#include "data/text/chat_template.h"
#include "data/text/tokenizer.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Throws ConfigError that begins with `source` for a tokenizer that does not belong to the model: a
// token id beyond the embedding would otherwise fail in the middle of a run.
void CheckVocabulary(const std::string& source, const ModelConfig& model,
                     const Tokenizer& tokenizer, const ChatTemplate& chat_template);

// Warns of added tokens that the model has no rows for, which stay text.
void WarnOfLeftOut(const Tokenizer& tokenizer);

}  // namespace equipoise
