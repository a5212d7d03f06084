#pragma once

#include <string>

#include "configs/base/json.h"
#include "data/settings/data_config.h"
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

// Writes how a run prepares pictures in place of what the folder that describes its model says:
// tiles, pixels, padding. Those of OpenGVLab's folders are in config.json instead
// (SetTileSettings). Throws RunError when a file cannot be written, and DataError for one that is
// no JSON.
void WriteImageProcessor(const ModelConfig& config, const DataConfig& data,
                         const std::string& folder);

// Sets the run's tiles, and the template and system text where OpenGVLab's code knows that
// template, in the config.json of a folder in their naming; others stay as they are.
void SetTileSettings(const ModelConfig& config, const DataConfig& data, Json* json);

// Writes the chat template that a run trains with into the folder that describes its model, in
// place of the one that is there. Throws RunError when a file cannot be written or removed.
void WriteChatTemplate(const ChatTemplate& chat, const std::string& folder);

// Whether the folder's chat template is one that WriteChatTemplate() has written.
bool HasWrittenChatTemplate(const std::string& folder);

}  // namespace equipoise
