#pragma once

#include "models/spec/model_config.h"
#include "parallel/parameter.h"
#include "trainer/loop/run_context.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// Weights of a run's first step: random, or those of model.hf, or of the model's parts
// (model.init).

// Checks those of a run that is planned and not started: warns where the folders have none, which
// are planned by their config.json. Throws DataError as CheckFirstWeights(). Of one process.
void CheckPlannedWeights(const RunConfig& config);

// Checks that the weights are there, without reading values; warns of others beside them. Throws
// ConfigError where a folder is needed and not given, DataError where its files do not hold every
// weight with its shape. Collective.
void CheckFirstWeights(const RunContext& context, const ModelConfig& model);

// Sets this rank's weights and their compute copies. Warns about matrices that are all zeros.
// Collective. Throws DataError.
void TakeFirstWeights(RunContext& context, const ModelConfig& model, FlatParameters& parameters);

}  // namespace equipoise
