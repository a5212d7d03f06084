#pragma once

#include <string>

#include "models/spec/model_config.h"
#include "models/weights/weights.h"

namespace equipoise {

// A file with the weights of a projector, as LLaVA's stage 1 writes it (mm_projector.bin), or with
// the names of the model's own form; it may hold others besides. Throws DataError, which begins
// with `key`, as RequireProjector() does, and where there is no such file.
WeightFolder ProjectorFile(const std::string& key, const std::string& path,
                           const ModelConfig& config);

// Throws DataError, which begins with `key`, unless a file or folder has all weights of the model's
// projector in their shapes, and no other of a projector. Reads only headers.
void RequireProjector(const std::string& key, const WeightFolder& from, const ModelConfig& config);

}  // namespace equipoise
