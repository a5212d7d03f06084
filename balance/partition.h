#pragma once

#include <string>
#include <vector>

#include "models/layer_spec.h"
#include "models/model_config.h"

namespace equipoise {

// Cuts layers of these costs into `parts` consecutive stages, none empty, so that the most
// expensive one is as cheap as can be; among equals, so that the earlier ones are. Exact dynamic
// programme. Returns parts + 1 begins. Throws ConfigError when there are fewer layers than parts.
std::vector<int> EvenStages(const std::vector<double>& costs, int parts);

// Forward and backward FLOPs of each layer for a full pack: what EvenStages cuts by default.
std::vector<double> LayerCosts(const ModelConfig& config, const std::vector<std::string>& frozen,
                               const LayerLoad& load);

}  // namespace equipoise
