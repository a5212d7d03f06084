#pragma once

#include <string>
#include <vector>

#include "models/spec/model_config.h"
#include "models/weights/weights.h"

namespace equipoise {

// The tensors of a folder that the model has no place for, sorted by name: with a config.json of
// fewer layers than the files hold, a smaller model would be trained. Not among them are those that
// no run needs: buffers that are computed, a head that is tied to the embedding, the text model
// beside an image encoder of CLIP or SigLIP, an encoder's pooling head, and biases of weights in
// GPTQ's form. Reads the files' headers alone. Throws DataError.
std::vector<std::string> UnusedWeights(const ModelConfig& config, const WeightFolder& folder);

}  // namespace equipoise
