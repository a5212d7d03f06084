#pragma once

#include <string>
#include <vector>

#include "models/families/family.h"

namespace equipoise {

// All families of language models. A new family is added to this list.
const std::vector<const DecoderFamily*>& DecoderFamilies();

// The family of a model_type of config.json; null for an unknown one.
const DecoderFamily* FindDecoderFamily(const std::string& model_type);

// The model_type of each family, in the order of DecoderFamilies().
std::vector<std::string> DecoderModelTypes();

}  // namespace equipoise
