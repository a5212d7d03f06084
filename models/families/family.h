#pragma once

#include <optional>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "models/families/rope_config.h"
#include "models/spec/config_section.h"
#include "models/spec/image_spec.h"
#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"
#include "models/spec/weight_names.h"

namespace equipoise {

// A model family is a folder next to this file that defines one DecoderFamily or EncoderFamily: the
// meaning of its config.json and weights. decoder_families.cc and encoder_families.cc list them
// all, and make_layer.cc the functions that make an encoder's layers. LibTorch-free.

// Settings of a model's folder for the preparation of pictures and conversations; those that it
// does not have are empty.
struct FolderSettings {
  std::optional<int64_t> min_tiles, max_tiles;
  std::optional<bool> thumbnail;
  std::optional<std::string> chat_template;     // may be one that data/ does not know
  std::optional<std::string> default_template;  // where the folder's files name none
  std::optional<std::string> system;
};

// A family of language models. Families differ in settings of TextConfig; their layers are the same
// (models/layers).
struct DecoderFamily {
  std::string model_type;    // of config.json
  std::string architecture;  // the class that config.json names
  // Reads the keys of this family, after ParseDecoder() has read those that all have in common.
  void (*parse)(const ConfigSection& section, TextConfig* text);
  // Writes those keys, for Transformers.
  void (*write)(const TextConfig& text, Json* json);
  // Weights whose names in files differ from ours. Null: none do.
  std::vector<Renaming> (*renamings)(const TextConfig& text) = nullptr;
  // Naming of the folders of models without an encoder; kOriginal where Transformers has no class.
  WeightNaming naming = WeightNaming::kTransformers;
  RopeRules rope = {};
  bool takes_layer_windows = false;  // ParseLayerWindow()
};

// A family of models with an image encoder and a connector in front of a language model.
struct EncoderFamily {
  std::vector<std::string> model_types;  // of config.json, one for each naming
  // Reads all of config.json; calls ParseDecoder() for the language model.
  void (*parse)(const ConfigSection& top, ModelConfig* config);
  // Throws DataError for sizes that do not go together.
  void (*validate)(const ModelConfig& config, const std::string& source);
  // Writes config.json in the naming of the model; on entry `json` is the source of `config`.
  void (*write)(const ModelConfig& config, Json* json);
  // Names of the encoder's and the connector's weights in the original naming. Where `in_memory`
  // is given, also those of folders in Transformers' naming; the first that fits is exported.
  std::vector<Renaming> (*renamings)(const ModelConfig& config);
  // The encoder's and the connector's layers.
  std::vector<LayerSpec> (*layers)(const ModelConfig& config, int tensor_ranks);
  ImageSpec (*images)(const ModelConfig& config);
  // Finds the id of the placeholder token of pictures in a tokenizer's files, for a config.json
  // that does not name it; -1: not found.
  int64_t (*find_image_token)(const std::string& folder);
  FolderSettings (*folder_settings)(const ModelConfig& config, const std::string& folder);
  // Sets the naming of the weights from those in FOLDER, where config.json does not tell it. Null:
  // it does.
  void (*find_naming)(const std::string& folder, ModelConfig* config) = nullptr;
  // Names of the modules in memory of the code that loads a folder. Null: its weights' names.
  std::vector<Renaming> (*in_memory)(const ModelConfig& config) = nullptr;
};

}  // namespace equipoise
