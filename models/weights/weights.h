#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/spec/model_config.h"
#include "models/spec/weight_names.h"
#include "parallel/parameter.h"

namespace equipoise {

// Sets every weight (Parameter::stored) by its TensorSpec::init. Each number is a function of
// (seed, parameter name, index in the whole tensor) only, so it is the same on every mesh. The
// caller calls FlatParameters::UpdateCompute() afterwards. Weights that are packed are drawn, or
// read, whole, packed, and dropped, one at a time.
void InitializeWeights(const std::vector<Parameter*>& parameters, const ModelConfig& config,
                       uint64_t seed);

// A Hugging Face folder (or one file) with the weights of a model, or of a part of one.
struct WeightFolder {
  WeightFolder(std::string folder, std::string missing = "", int64_t rows = 0)
      : path(std::move(folder)), prefix(std::move(missing)), added_rows(rows) {}

  std::string path;
  std::string prefix;                // what the names in it lack of names that the model knows
  int64_t added_rows = 0;            // of the model's vocabulary, beyond those of the folder
  std::optional<WeightNames> names;  // where they are not those of the model's own form
};

// Reads the weights (Parameter::stored) from a Hugging Face folder into their memory: only the byte
// ranges that `parameters` hold, of fused and of split tensors too. The caller calls
// FlatParameters::UpdateCompute() afterwards. Throws DataError for missing names, other shapes and
// elements that are not finite; ignores tensors that the model does not use (UnusedWeights() names
// them), and leaves adapters as they are. Rows that were added to the vocabulary get the mean of
// the folder's, the same bits on every mesh. Returns the names of matrices that hold only zeros,
// which no trained model has.
std::vector<std::string> LoadWeights(const std::vector<Parameter*>& parameters,
                                     const ModelConfig& config, const WeightFolder& folder);

// Reads one weight, whole, as LoadWeights() does.
void ReadWeight(Parameter& parameter, const ModelConfig& config, const WeightFolder& folder);

// Throws where LoadWeights() would for missing names and other shapes. Reads only the headers of
// the files; parameters need no memory.
void CheckWeights(const std::vector<Parameter*>& parameters, const ModelConfig& config,
                  const WeightFolder& folder);

// A fused tensor, from all its parts (whole tensors).
at::Tensor FuseRows(const std::vector<std::pair<FusedRows, at::Tensor>>& parts);

// Tensors as a folder in the model's naming holds them, renamed and fused, from whole tensors by
// our names.
std::map<std::string, at::Tensor> NamedForFolder(const std::map<std::string, at::Tensor>& tensors,
                                                 const ModelConfig& config);

}  // namespace equipoise
