#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/conversation.h"
#include "data/tokenizer.h"

namespace equipoise {

// A conversation as the model sees it.
struct EncodedConversation {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;       // per token: 1 where the token is learnt
  // Per picture, in order: its first context token. The picture covers tiles * tokens_per_tile tokens.
  std::vector<int64_t> image_begin;
};

// How conversations become ids and loss mask, as typed code: a template that is rendered as text has
// no loss mask. "chatml" is Qwen's ChatML without a default system text; "internvl2_5" adds InternVL's
// own. Both put `<img>` context tokens `</img>` in place of `<image>`, learn the assistant's
// text and its <|im_end|>, and encode special tokens in a user's text as ordinary text.
class ChatTemplate {
 public:
  // Throws DataError when the tokenizer lacks a special token that the template needs, ConfigError for
  // an unknown name. `system` replaces the template's own system text when not empty.
  ChatTemplate(const std::string& name, const std::string& system, const Tokenizer* tokenizer);

  // `tiles[i]` tiles for picture i. REQUIRES: as many `<image>` in user turns as tiles (see
  // PlaceImages). `max_tokens` cuts the end; when that would cut a picture, `error` says so.
  // `with_answer_prompt` ends with the start of an assistant turn (generation).
  EncodedConversation Encode(const std::vector<Turn>& turns, const std::vector<int64_t>& tiles,
                             int64_t tokens_per_tile, bool with_answer_prompt = false) const;

  int32_t image_token() const { return image_token_; }  // <IMG_CONTEXT>
  int32_t end_of_turn() const { return end_of_turn_; }  // <|im_end|>
  uint64_t fingerprint() const;                          // changes with everything that Encode depends on

 private:
  std::string name_, system_;
  const Tokenizer* tokenizer_;
  int32_t image_token_ = -1, end_of_turn_ = -1;
  std::vector<int32_t> image_start_, image_end_;
};

}  // namespace equipoise
