#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/added_tokens.h"
#include "data/text/conversation.h"
#include "data/text/tokenizer.h"

namespace equipoise {

// A conversation as the model sees it.
struct EncodedConversation {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;      // per token: 1 where the token is a target
  std::vector<int64_t> image_begin;  // per picture, in order: its first context token
};

// Makes the `<image>` in user turns agree with the number of pictures: a record of one picture that
// has none gets "<image>\n" before its first user turn, as InternVL does. Returns the fault where
// the numbers cannot agree, else an empty text. `<image>` in other turns is ordinary text.
std::string PlaceImages(std::vector<Turn>& turns, size_t images);

// Truncates `conversation` to `max_tokens` tokens; `image_tokens` has those of each picture.
// Returns the fault where that would cut into a picture or drop one, and leaves the conversation as
// it is; else an empty text.
std::string Truncate(EncodedConversation& conversation, const std::vector<int64_t>& image_tokens,
                     int64_t max_tokens);

// Encoder of conversations into ids and loss mask, as typed code: a template that is rendered as
// text has no loss mask. data/settings/chat_templates.h lists the templates. All put `<img>`
// context tokens `</img>` in place of `<image>`; train on the assistant's text and its <|im_end|>
// (not on a token that a line break at the start of the answer forms with the header's: it is part
// of every prompt); and treat special tokens in a text as ordinary text, except grounding marks
// (<ref>, <box>, <quad>), which do not affect the conversation's form. Thread-safe.
class ChatTemplate {
 public:
  // Throws DataError when the tokenizer lacks <|im_start|> or <|im_end|>, ConfigError for an
  // unknown name. `system` replaces the template's own system text when not empty. `tokenizer` must
  // outlive this object.
  ChatTemplate(const std::string& name, const std::string& system, const Tokenizer* tokenizer);

  // Encodes `turns`, with `image_tokens[i]` context tokens for picture i. REQUIRES: as many
  // `<image>` in user turns (see PlaceImages). `with_answer_prompt` ends with the start of an
  // assistant turn (generation). Throws DataError for pictures when the tokenizer lacks the tokens
  // for them.
  EncodedConversation Encode(const std::vector<Turn>& turns,
                             const std::vector<int64_t>& image_tokens,
                             bool with_answer_prompt = false) const;

  // Ids of <IMG_CONTEXT>, -1 where the tokenizer has none, and of <|im_end|>.
  int32_t image_token() const { return image_token_; }
  int32_t end_of_turn() const { return end_of_turn_; }
  // Changes with everything that Encode depends on.
  uint64_t fingerprint() const;

 private:
  class Writer;

  std::string name_, system_;
  const Tokenizer* tokenizer_;
  int32_t start_of_turn_ = -1, end_of_turn_ = -1;
  int32_t image_token_ = -1, image_start_ = -1, image_end_ = -1;
  AddedTokenFinder marks_;
  std::vector<int32_t> begin_, newline_;  // before the first turn, after each
  size_t answer_header_ = 0;              // tokens of "assistant\n"
};

}  // namespace equipoise
