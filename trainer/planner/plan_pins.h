#pragma once

#include "balance/search/plan_request.h"
#include "models/spec/model_config.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// The choices of a plan that `parallel` and `balance` fix. A schedule from a file is not among
// them. Throws ConfigError for stages or recomputation that do not match the model's layers.
PlanPins PlanPinsOf(const RunConfig& config, const ModelConfig& model);

}  // namespace equipoise
