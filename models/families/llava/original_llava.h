#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "models/families/family.h"

namespace equipoise {

// LLaVA's own code (not Transformers'), its folders and files. Such a folder has a language model
// and a projector, and the encoder by its name alone, or its weights too where they were trained.
// LibTorch-free.

struct OriginalLlava {
  Json decoder;               // config.json of the language model alone
  std::string encoder;        // mm_vision_tower: openai/clip-vit-large-patch14-336
  int64_t encoder_width = 0;  // mm_hidden_size; 0: not told
  int64_t feature_layer = 0;  // mm_vision_select_layer
  bool pads = false;          // pictures are padded to a square
};

// Whether a config.json is of that code (mm_vision_tower, LlavaLlamaForCausalLM).
bool IsOriginalLlava(const ConfigSection& top);

// Reads it. Throws DataError for what is another model than LLaVA-1.5, such as one of pictures of
// any resolution.
OriginalLlava ParseOriginalLlava(const ConfigSection& top);

// Throws DataError for such a folder as a whole model.
void RefuseOriginalLlava(const ConfigSection& top);

// Names of the projector's weights there, behind each of `prefixes`. They are read, and never
// written.
std::vector<Renaming> OriginalProjectorNames(const std::vector<std::string>& prefixes);

// What the names of the encoder's weights begin with, where the folder has them.
constexpr char kOriginalTower[] = "model.vision_tower.vision_tower.";

// Names of the weights in such a folder that are not the language model's, behind `prefix`.
std::vector<Renaming> OriginalLlavaNames(const std::string& prefix);

}  // namespace equipoise
