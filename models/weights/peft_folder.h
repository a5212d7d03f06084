#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "models/spec/model_config.h"
#include "parallel/parameter.h"

namespace equipoise {

// Adapters as PEFT's save_pretrained() writes them: adapter_config.json and
// adapter_model.safetensors.

// Reads the trained weights (adapters, and modules that were trained in full) into
// Parameter::stored(). `config` has the folder's adapters. Throws DataError for names and shapes of
// another base, and for elements that are not finite.
void LoadPeft(const std::vector<Parameter*>& parameters, const ModelConfig& config,
              const std::string& folder);

// Writes a folder that PEFT loads over the base, `base` being its path or name. `tensors`: whole
// tensors by our names. Throws RunError.
void WritePeft(const std::string& folder, const ModelConfig& config, const std::string& base,
               const std::map<std::string, at::Tensor>& tensors);

}  // namespace equipoise
