#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/spec/model_config.h"
#include "models/spec/weight_names.h"
#include "parallel/parameter.h"

namespace equipoise {

// Draws every weight (Parameter::stored) as its TensorSpec::init says. Each number is a function of
// (seed, parameter name, index) alone, so it is the same on every mesh. The caller calls
// FlatParameters::UpdateCompute() afterwards.
void InitializeWeights(const std::vector<Parameter*>& parameters, const ModelConfig& config,
                       uint64_t seed);

// Reads the weights (Parameter::stored) from a Hugging Face folder, only the byte ranges that
// `parameters` hold (of fused and of split tensors too), straight into their memory. The caller
// calls FlatParameters::UpdateCompute() afterwards. Throws DataError for missing names, other
// shapes and elements that are not finite; tensors that the model does not use are passed over.
// Returns the names of matrices that hold nothing but zeros, which no trained model has.
std::vector<std::string> LoadWeights(const std::vector<Parameter*>& parameters,
                                     const ModelConfig& config, const std::string& folder);

// Throws where LoadWeights() would for missing names and other shapes, by the headers of the files
// alone: no tensor is read, and parameters need no memory.
void CheckWeights(const std::vector<Parameter*>& parameters, const ModelConfig& config,
                  const std::string& folder);

// Whole parts of a fused tensor, put together.
at::Tensor FuseRows(const std::vector<std::pair<FusedRows, at::Tensor>>& parts);

// Whole tensors by our names, as a folder of the model's naming holds them: renamed, fused ones put
// together.
std::map<std::string, at::Tensor> NamedForFolder(const std::map<std::string, at::Tensor>& tensors,
                                                 const ModelConfig& config);

}  // namespace equipoise
