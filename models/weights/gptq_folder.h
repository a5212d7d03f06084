#pragma once

#include <string>

#include "models/spec/tensor_spec.h"
#include "models/spec/weight_names.h"
#include "models/weights/gptq_part.h"
#include "models/weights/safetensors.h"
#include "parallel/parameter.h"

namespace equipoise {

// Weights that a Hugging Face folder holds in GPTQ's form: X.qweight, X.qzeros, X.scales and
// X.g_idx in place of X.weight.

// X.weight for those four names; any other name as it is.
std::string GptqWeightName(const std::string& name);

// Throws DataError unless the folder has all four for a weight, with the shapes and dtypes of its
// form. Reads only the headers of the files.
void RequireGptq(const SafetensorsFolder& files, const WeightMap& map, const TensorSpec& weight);

// A weight's rows that `part` has, of a fused tensor too, and all of its inputs. Throws DataError
// as RequireGptq(), for groups that do not exist and for scales that are not finite.
GptqMatrix ReadGptq(const SafetensorsFolder& files, const WeightMap& map, const TensorSpec& weight,
                    const MatrixPart& part);

// Throws DataError where the folder has a bias other than 0 for a weight whose layer has none in
// the model: AutoGPTQ writes a bias of zeros for each layer of some models.
void RequireNoBias(const SafetensorsFolder& files, const WeightMap& map, const TensorSpec& weight);

}  // namespace equipoise
