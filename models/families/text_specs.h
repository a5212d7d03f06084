#pragma once

#include <string>
#include <vector>

#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"

namespace equipoise {

// The layers of a language model: token embedding, decoder blocks, and the head with the final norm
// and the loss; models/layers computes them. `prefix` begins their names ("" without an encoder).
// Costs are those on one of `tensor_ranks`. Throws ConfigError for more ranks than can share the
// layers.
std::vector<LayerSpec> TextSpecs(const TextConfig& text, const std::string& prefix,
                                 int tensor_ranks);

}  // namespace equipoise
