#pragma once

#include <string>

#include "configs/base/json.h"
#include "models/spec/model_config.h"

namespace equipoise {

// The settings of FOLDER's image processor: a file of its own, or since version 5 of Transformers a
// section of processor_config.json. Null where there is neither. Throws DataError.
Json ReadPreprocessor(const std::string& folder);

// Those of its video processor: a section of processor_config.json, or a file of its own, or that
// of the image processor, in the order in which Transformers takes them.
Json ReadVideoPreprocessor(const std::string& folder);

// Takes those of FOLDER, of a model or of adapters, where it has some. Throws DataError.
void TakePreprocessors(const std::string& folder, ModelConfig* config);

// Has a LLaVA's pictures padded to a square, here and in its image processor's settings.
void PadPictures(ModelConfig* config);

}  // namespace equipoise
