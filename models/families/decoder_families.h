#pragma once

#include <string>
#include <vector>

#include "models/families/family.h"

namespace equipoise {

// All language models' families; a new one is listed here.
const std::vector<const DecoderFamily*>& DecoderFamilies();

// By the model_type of config.json; null: none.
const DecoderFamily* FindDecoderFamily(const std::string& model_type);

// "qwen2, llama or ..."
std::string DecoderModelTypes();

}  // namespace equipoise
