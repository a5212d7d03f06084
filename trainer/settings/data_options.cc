#include "trainer/settings/data_options.h"

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/model_parts.h"

namespace equipoise {

std::string TokenizerPath(const RunConfig& config) {
  if (!config.model.llm.empty()) {
    if (config.data.tokenizer.empty()) return config.model.llm;
    throw ConfigError(
        "data.tokenizer: given beside model.llm, whose tokenizer the model has; leave it out");
  }
  const std::string& path = config.data.tokenizer.empty() ? config.model.hf : config.data.tokenizer;
  if (path.empty()) {
    throw ConfigError(
        "data.tokenizer: is empty, and so is model.hf; give a folder with "
        "tokenizer.json, tokenizer.model, or vocab.json and merges.txt");
  }
  return path;
}

ChatOptions ChatOptionsOf(const DataConfig& data) {
  return {.image_first = data.image_first, .last_answer = data.train_turns == "last"};
}

Tokenizer ReadTokenizer(const RunConfig& config, const ModelConfig& model) {
  const std::string path = TokenizerPath(config);
  std::vector<std::string> added;
  if (!config.model.llm.empty()) added = ImageTokensOf(ReadEncoderPart(config.model.vision));
  return Tokenizer::Read(path, added, model.text.vocab_size);
}

SampleOptions SampleOptionsOf(const DataConfig& data, const ModelConfig& model) {
  return {data.max_tokens,        data.tiles,         data.limits,
          ImageSpecOf(model),     data.allow_outside, data.max_frames,
          data.too_long == "drop"};
}

}  // namespace equipoise
