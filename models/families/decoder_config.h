#pragma once

#include <string>

#include "configs/base/json.h"
#include "models/spec/config_section.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Reads a language model's section of config.json, or the whole of it, as its model_type says.
// Throws DataError that names the key.
TextConfig ParseDecoder(const ConfigSection& section);

// As ParseDecoder(), of a section beside an encoder's in whose published folders sizes are left out
// that are Transformers' defaults for its model_type; that is `type` where the section does not
// tell it.
TextConfig ParseNestedDecoder(const ConfigSection& section, const char* type);

// Sets the keys that Transformers (4 and 5) reads; others stay as they are.
void WriteDecoder(const TextConfig& text, Json* json);

// Refuses sizes that do not go together. `where` begins the message.
void ValidateDecoder(const TextConfig& text, const std::string& where);

}  // namespace equipoise
