#pragma once

#include <string>
#include <vector>

#include "models/families/family.h"

namespace equipoise {

// All language models' families; a new one is listed here.
const std::vector<const DecoderFamily*>& DecoderFamilies();

// By the model_type of config.json; null: none.
const DecoderFamily* FindDecoderFamily(const std::string& model_type);

// The model_types of all.
std::vector<std::string> DecoderModelTypes();

}  // namespace equipoise
