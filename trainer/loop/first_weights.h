#pragma once

#include "models/spec/model_config.h"
#include "parallel/parameter.h"
#include "trainer/loop/run_context.h"

namespace equipoise {

// Weights of a run's first step: random, or those of model.hf (model.init).

// Throws ConfigError where model.hf is not given, DataError where its files do not hold every
// weight in its shape; reads no values. Collective.
void CheckFirstWeights(const RunContext& context, const ModelConfig& model);

// Sets this rank's weights, and the compute copies. Warns of matrices of nothing but zeros.
// Collective. Throws DataError.
void TakeFirstWeights(RunContext& context, const ModelConfig& model, FlatParameters& parameters);

}  // namespace equipoise
