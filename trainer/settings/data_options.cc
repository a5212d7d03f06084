#include "trainer/settings/data_options.h"

#include "configs/base/error.h"

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
  SampleOptions options{data.max_tokens, data.tiles, data.limits, 0, 0, data.follow_links};
  if (model.has_vision) {
    options.tokens_per_tile = model.tokens_per_tile();
    options.tile_size = model.vision.image_size;
  }
  return options;
}

}  // namespace equipoise
