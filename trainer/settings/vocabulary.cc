#include "trainer/settings/vocabulary.h"

#include <fmt/format.h>

#include "configs/base/error.h"

namespace equipoise {

void CheckVocabulary(const std::string& source, const ModelConfig& model,
                     const Tokenizer& tokenizer, const ChatTemplate& chat_template) {
  if (tokenizer.vocab_size() > model.text.vocab_size) {
    throw ConfigError(
        fmt::format("{}: has ids up to {}, the model's vocab_size is {}; use the model's own "
                    "tokenizer",
                    source, tokenizer.vocab_size() - 1, model.text.vocab_size));
  }
  if (model.has_vision && model.image_token_id >= 0 &&
      model.image_token_id != chat_template.image_token()) {
    throw ConfigError(fmt::format(
        "{}: {} is {}, the model's image_token_id {}; use the model's own tokenizer", source,
        chat_template.image_token_text(), chat_template.image_token(), model.image_token_id));
  }
  // A tokenizer without one refuses videos alone.
  if (model.video_token_id >= 0 && chat_template.video_token() >= 0 &&
      model.video_token_id != chat_template.video_token()) {
    throw ConfigError(fmt::format(
        "{}: {} is {}, the model's video_token_id {}; use the model's own tokenizer", source,
        chat_template.video_token_text(), chat_template.video_token(), model.video_token_id));
  }
}

}  // namespace equipoise
