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

// Reads a Hugging Face config.json in the form of Transformers 4 or 5 (rope_theta or
// rope_parameters, torch_dtype or dtype, image_size as a number or a list), or of the code that the
// model was published with. Throws DataError that begins with `source:` and names the key for what
// is missing, impossible or not supported.
ModelConfig ParseModelConfig(const Json& json, const std::string& source);
// Reads FOLDER/config.json. Where it does not name the placeholder token of pictures, the id comes
// from the tokenizer's files in FOLDER.
ModelConfig ReadModelConfig(const std::string& folder);

// Checks that sizes go together, as ParseModelConfig does; for configurations made in code. Throws
// DataError.
void ValidateModelConfig(const ModelConfig& config, const std::string& source);

// A line for each setting of the configuration that has no effect although a user may expect one:
// training does not apply it, or it is a token id outside the vocabulary.
std::vector<std::string> IgnoredSettings(const ModelConfig& config);

// A config.json that Transformers (4 and 5) reads back as the same model, or, in the original
// naming, that the model's own code does. Unknown keys of `config.source` are kept.
Json ToHuggingFace(const ModelConfig& config);

// The layers of a model, in order, with costs on one of `tensor_ranks`. Throws ConfigError for more
// ranks than can share them.
std::vector<LayerSpec> LayerSpecs(const ModelConfig& config, int tensor_ranks = 1);

// The image input of a model.
ImageSpec ImageSpecOf(const ModelConfig& config);

// The settings of data preparation in FOLDER, which `config` was read from. Throws DataError.
FolderSettings FolderSettingsOf(const ModelConfig& config, const std::string& folder);

// The names of a model's weights; `more` are renamings to other names that a file may have.
WeightNames WeightNamesOf(const ModelConfig& config, const std::vector<Renaming>& more = {});

}  // namespace equipoise
