#include "trainer/settings/data_options.h"

#include "configs/base/error.h"
#include "models/families/families.h"

namespace equipoise {

std::string TokenizerPath(const RunConfig& config) {
  const std::string& path = config.data.tokenizer.empty() ? config.model.hf : config.data.tokenizer;
  if (path.empty()) {
    throw ConfigError(
        "data.tokenizer: is empty, and so is model.hf; give a tokenizer.json, a tokenizer.model, "
        "or its folder");
  }
  return path;
}

SampleOptions SampleOptionsOf(const DataConfig& data, const ModelConfig& model) {
  return {data.max_tokens, data.tiles, data.limits, ImageSpecOf(model), data.allow_outside};
}

}  // namespace equipoise
