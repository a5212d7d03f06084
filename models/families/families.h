#pragma once

#include <string>
#include <vector>

#include "configs/base/json.h"
#include "models/families/family.h"
#include "models/spec/image_spec.h"
#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"
#include "models/spec/weight_names.h"

namespace equipoise {

// Configuration, layers and weight names of a model, by its family. LibTorch-free.

// Reads a Hugging Face config.json, as Transformers 4 and 5 write it (rope_theta or
// rope_parameters, torch_dtype or dtype, image_size as a number or a list), or as the code that the
// model was published with does. Throws DataError that begins with `source:` and names the key for
// what is missing, impossible or not supported.
ModelConfig ParseModelConfig(const Json& json, const std::string& source);
// Reads FOLDER/config.json. Where it does not name the picture token, the id comes from the
// tokenizer's files beside it.
ModelConfig ReadModelConfig(const std::string& folder);

// Refuses sizes that do not go together, as ParseModelConfig does; for configurations made by hand.
void ValidateModelConfig(const ModelConfig& config, const std::string& source);

// One line for each setting of the configuration that training does not apply, though a user may
// expect it to, or that stands for nothing.
std::vector<std::string> IgnoredSettings(const ModelConfig& config);

// A config.json that Transformers (4 and 5) reads back as the same model; in the original naming,
// the one that the model's own code reads back. Keys of `config.source` that we do not know are
// kept.
Json ToHuggingFace(const ModelConfig& config);

// The layers of a model, in order, with costs on one of `tensor_ranks`. Throws ConfigError for more
// ranks than can share them.
std::vector<LayerSpec> LayerSpecs(const ModelConfig& config, int tensor_ranks = 1);

// How it takes pictures.
ImageSpec ImageSpecOf(const ModelConfig& config);

// How FOLDER, which `config` was read from, says that data is prepared. Throws DataError.
FolderSettings FolderSettingsOf(const ModelConfig& config, const std::string& folder);

// The names of its weights.
WeightNames WeightNamesOf(const ModelConfig& config);

}  // namespace equipoise
