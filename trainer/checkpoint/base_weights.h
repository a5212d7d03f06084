#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec/model_config.h"
#include "parallel/parameter.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// Sets the weights of a run's first step: those of model.hf, or of model.vision and model.llm with
// a projector of model.projector.weights or drawn by this seed, or random ones of it; adapters as
// they begin, or those of model.adapter.init. Checkpoints of adapters lie on top of it. Returns
// the names of the folders' matrices that hold only zeros. The caller calls
// FlatParameters::UpdateCompute() afterwards. Throws ConfigError where a folder is needed and not
// given, DataError as LoadWeights() and LoadPeft().
std::vector<std::string> SetFirstWeights(const std::vector<Parameter*>& parameters,
                                         const ModelConfig& model, const ModelSection& section,
                                         uint64_t seed);

// Throws where SetFirstWeights() would for a folder that is not given, lacks weights or has other
// shapes. Reads only the headers of the files; parameters need no memory.
void CheckFirstFolders(const std::vector<Parameter*>& parameters, const ModelConfig& model,
                       const ModelSection& section);

// A line for each of those folders that holds weights which the model does not use: as config.json
// says fewer layers, for one. Reads only the headers of the files. Throws DataError.
std::vector<std::string> UnusedInFolders(const ModelConfig& model, const ModelSection& section);

// What tells one base from another: a hash of the headers of the files that its weights are read
// from, and of samples of their values; for random weights the seed. Throws DataError.
std::string BaseIdentity(const ModelSection& section, uint64_t seed);

}  // namespace equipoise
