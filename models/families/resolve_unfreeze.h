#pragma once

#include <string>
#include <vector>

#include "models/spec/model_config.h"

namespace equipoise {

// Sets config->unfreeze to the modules that `texts` (model.unfreeze) mean in the components
// `frozen`: blocks of one by a slice of Python's, as vision[-8:], of those that are computed with;
// or as ModulePatterns::MatchWithin(). The name of a head that is tied means the embedding's
// weight. Throws ConfigError that begins with model.unfreeze for what means nothing, or nothing
// that is frozen. LibTorch-free.
void ResolveUnfreeze(const std::vector<std::string>& texts, const std::vector<std::string>& frozen,
                     ModelConfig* config);

}  // namespace equipoise
