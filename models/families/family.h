#pragma once

#include <optional>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "models/spec/config_section.h"
#include "models/spec/image_spec.h"
#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"
#include "models/spec/weight_names.h"

namespace equipoise {

// A model family is a folder beside this file. It says in a value of one of these types what its
// config.json and its weights mean; families.cc lists them all, and make_layer.cc the functions
// that make its layers. LibTorch-free.

// How a model's folder says that pictures are prepared and conversations written; what it does not
// say has no value.
struct FolderSettings {
  std::optional<int64_t> min_tiles, max_tiles;
  std::optional<bool> thumbnail;
  std::optional<std::string> chat_template;  // which may be none of ours
  std::optional<std::string> system;
};

// A language model. What sets one apart from another are settings of TextConfig; their layers are
// the same (models/layers).
struct DecoderFamily {
  std::string model_type;    // of config.json
  std::string architecture;  // the class that config.json names
  // Reads what is this family's own, after ParseDecoder() has read what all have in common.
  void (*parse)(const ConfigSection& section, TextConfig* text);
  // Writes the same, for Transformers.
  void (*write)(const TextConfig& text, Json* json);
  // How weights are called where that is not as here. Null: they are called the same.
  std::vector<Renaming> (*renamings)(const TextConfig& text) = nullptr;
  // Models of this family alone are in this naming.
  WeightNaming naming = WeightNaming::kTransformers;
};

// An image encoder and a connector in front of a language model.
struct EncoderFamily {
  std::vector<std::string> model_types;  // of config.json, one for each naming
  // Reads all of config.json, the language model by ParseDecoder().
  void (*parse)(const ConfigSection& top, ModelConfig* config);
  // Throws DataError for sizes that do not go together.
  void (*validate)(const ModelConfig& config, const std::string& source);
  // Writes config.json in the naming of the model; `json` holds what it was read from.
  void (*write)(const ModelConfig& config, Json* json);
  // How the encoder's and the connector's weights are called in the original naming.
  std::vector<Renaming> (*renamings)(const ModelConfig& config);
  // The encoder's and the connector's layers.
  std::vector<LayerSpec> (*layers)(const ModelConfig& config, int tensor_ranks);
  ImageSpec (*images)(const ModelConfig& config);
  // The id of the token whose places pictures take, in a folder with a tokenizer whose config.json
  // does not tell; -1: not found.
  int64_t (*find_image_token)(const std::string& folder);
  FolderSettings (*folder_settings)(const ModelConfig& config, const std::string& folder);
};

}  // namespace equipoise
