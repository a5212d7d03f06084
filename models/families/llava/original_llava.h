#pragma once

#include <string>
#include <vector>

#include "models/families/family.h"

namespace equipoise {

// LLaVA's own code (not Transformers'), its folders and files. LibTorch-free.

// Names of the projector's weights there, behind each of `prefixes`. They are read, and never
// written.
std::vector<Renaming> OriginalProjectorNames(const std::vector<std::string>& prefixes);

// Throws DataError for a config.json of that code (mm_vision_tower, LlavaLlamaForCausalLM).
void RefuseOriginalLlava(const ConfigSection& top);

}  // namespace equipoise
