#pragma once

#include <string>

#include "data/text/chat_template.h"
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

// Writes how pictures are prepared in place of what the folder of a model says. Throws RunError
// when a file cannot be written.
void WriteImageProcessor(const ModelConfig& config, const std::string& folder);

// Writes the chat template that a run trains with into the folder that describes its model, in
// place of the one that is there. Throws RunError when a file cannot be written or removed.
void WriteChatTemplate(const ChatTemplate& chat, const std::string& folder);

// Whether the folder's chat template is one that WriteChatTemplate() has written.
bool HasWrittenChatTemplate(const std::string& folder);

}  // namespace equipoise
