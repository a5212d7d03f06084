#pragma once

#include <string>
#include <vector>

#include "models/families/family.h"

namespace equipoise {

// All families of models with an image encoder. A new family is added to this list, and its layers
// to make_layer.cc.
const std::vector<const EncoderFamily*>& EncoderFamilies();

// The family of a model_type of config.json; null for an unknown one.
const EncoderFamily* FindEncoderFamily(const std::string& model_type);

}  // namespace equipoise
