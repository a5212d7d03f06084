#pragma once

#include <string>
#include <vector>

#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Low-rank adapters in the description of a model's layers (models/spec/lora.h). LibTorch-free.

// Adds config.lora's adapters to the linear layers that it names: NAME.lora_A.weight [rank, in],
// NAME.lora_B.weight [out, rank] and, with DoRA, NAME.lora_magnitude_vector.weight [out], each
// split as its linear layer is. All other weights become a frozen base (ParameterRole::kBase), but
// those of the modules in lora.train, which get no adapter; config.quantize says which of them are
// packed. Costs of `specs` are those of one of `tensor_ranks`. Without adapters all of a model with
// packed weights is frozen, and another model is left as it is.
void AddAdapters(const ModelConfig& config, int tensor_ranks, std::vector<LayerSpec>* specs);

// Replaces the entries of config->lora.targets and train by the names of all modules that they
// match (models/families/module_patterns.h), dots escaped. Throws ConfigError that begins with
// `key`, the name of the section, for one that matches none, or no linear layer of a component that
// is not in lora.without.
void ResolveLora(const std::string& key, ModelConfig* config);

// How many linear layers of each component have adapters, those that are one in the model's own
// code counted as one; empty without adapters.
std::string DescribeLora(const ModelConfig& config);

// The regular expression that matches this name alone.
std::string ExactPattern(const std::string& name);

inline constexpr char kPeftPrefix[] = "base_model.model.";  // of names in a PEFT file
// The module of a linear layer with an adapter in a PEFT file, without the prefix. An encoder's is
// that of Transformers 4.52 to 4.57: PEFT renames it for version 5, and never the other way round.
std::string PeftLayer(const ModelConfig& config, const std::string& layer);
// The name of an adapter's parameter in a PEFT file.
std::string PeftName(const ModelConfig& config, const std::string& parameter);

}  // namespace equipoise
