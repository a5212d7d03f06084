#pragma once

#include <string>
#include <vector>

#include "models/families/family.h"

namespace equipoise {

// All families of models with an image encoder; a new one is listed here, and its layers in
// make_layer.cc.
const std::vector<const EncoderFamily*>& EncoderFamilies();

// By the model_type of config.json; null: none.
const EncoderFamily* FindEncoderFamily(const std::string& model_type);

}  // namespace equipoise
