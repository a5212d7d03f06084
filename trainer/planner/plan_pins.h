#pragma once

#include "balance/search/plan_request.h"
#include "models/spec/model_config.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// Choices that `parallel` and `balance` have made already. Throws ConfigError for stages or
// recomputation that do not fit the model's layers, and for a schedule that is none of the built
// ones.
PlanPins PlanPinsOf(const RunConfig& config, const ModelConfig& model);

}  // namespace equipoise
