#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec/model_config.h"
#include "parallel/parameter.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// Sets the weights of a run's first step: those of model.hf, or random ones of this seed; adapters
// as they begin, or those of model.adapter.init. Checkpoints of adapters lie on top of it. Returns
// the names of matrices of model.hf that hold only zeros. The caller calls
// FlatParameters::UpdateCompute() afterwards. Throws ConfigError where model.hf is needed and not
// given, DataError as LoadWeights() and LoadPeft().
std::vector<std::string> SetFirstWeights(const std::vector<Parameter*>& parameters,
                                         const ModelConfig& model, const ModelSection& section,
                                         uint64_t seed);

// What tells one base from another: a hash of the headers of model.hf's files, and of samples of
// their values; for random weights the seed. Throws DataError.
std::string BaseIdentity(const ModelSection& section, uint64_t seed);

}  // namespace equipoise
