#pragma once

#include <string>

#include "configs/base/json.h"
#include "models/spec/config_section.h"
#include "models/spec/model_config.h"

namespace equipoise {

// A language model's section of config.json, or the whole of it, by its model_type. Throws
// DataError that names the key.
TextConfig ParseDecoder(const ConfigSection& section);

// The keys that Transformers (4 and 5) reads; others stay as they are.
void WriteDecoder(const TextConfig& text, Json* json);

// Refuses sizes that do not go together. `where` begins the message.
void ValidateDecoder(const TextConfig& text, const std::string& where);

}  // namespace equipoise
