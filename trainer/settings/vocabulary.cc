#include "trainer/settings/vocabulary.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <vector>

#include "configs/base/error.h"
#include "configs/base/shown_text.h"

namespace equipoise {

void CheckVocabulary(const std::string& source, const ModelConfig& model,
                     const Tokenizer& tokenizer, const ChatTemplate& chat_template) {
  if (tokenizer.vocab_size() > model.text.vocab_size) {
    const auto last = static_cast<int32_t>(tokenizer.vocab_size() - 1);
    throw ConfigError(fmt::format(
        "{}: has ids up to {}, that of '{}', the model's vocab_size is {}; use the model's own "
        "tokenizer",
        source, last, ShownText(tokenizer.Decode({last}, /*skip_special=*/false)),
        model.text.vocab_size));
  }
  if (model.has_vision && model.image_token_id >= 0 && chat_template.image_token() < 0) {
    throw ConfigError(
        fmt::format("{}: has no token for pictures, the model's image_token_id is {}; use the "
                    "model's own tokenizer",
                    source, model.image_token_id));
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

void WarnOfLeftOut(const Tokenizer& tokenizer) {
  const std::vector<AddedToken>& tokens = tokenizer.left_out();
  if (tokens.empty()) return;
  spdlog::warn(
      "{}: {} added token{}, such as {} (id {}), {} no row in the model's embedding and stay{} "
      "text",
      tokenizer.source(), tokens.size(), tokens.size() == 1 ? "" : "s",
      ShownText(tokens.front().content), tokens.front().id, tokens.size() == 1 ? "has" : "have",
      tokens.size() == 1 ? "s" : "");
}

}  // namespace equipoise
