#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/settings/chat_templates.h"
#include "data/text/added_tokens.h"
#include "data/text/conversation.h"
#include "data/text/tokenizer.h"

namespace equipoise {

// A conversation as the model sees it.
struct EncodedConversation {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;      // per token: 1 where the token is a target
  std::vector<int64_t> image_begin;  // per picture or video, in order: its first context token
  std::vector<int64_t> image_end;    // and the end of what belongs to it, a closing mark included
};

// Makes the `<image>` in user turns agree with the number of pictures: a record that has none in
// any turn gets "<image>\n" for each picture before its first user turn, as InternVL does for one.
// Returns the fault where the numbers cannot agree, else an empty text. `<image>` in other turns is
// ordinary text.
std::string PlaceImages(std::vector<Turn>& turns, size_t images);

// Likewise of `<video>` and the number of videos; marks the user turns, in which it stands for one.
std::string PlaceVideos(std::vector<Turn>& turns, size_t videos);

// Truncates `conversation` to `max_tokens` tokens. Returns the fault where that would cut into a
// picture or drop one, and leaves the conversation as it is; else an empty text.
std::string Truncate(EncodedConversation& conversation, int64_t max_tokens);

// How conversations of training are read, besides the template.
struct ChatOptions {
  // A user turn's only `<image>` is on a line of its own before the text, which loses the white
  // space around it (preprocess_multimodal of LLaVA's code).
  bool image_first = false;
  bool last_answer = false;  // the last answer alone is trained on
};

// Encoder of conversations into ids and loss mask: the forms of data/settings/chat_templates.h, not
// a template's program, which says nothing of the mask. Special tokens in a text are ordinary text,
// except grounding marks (<ref>, <box>, <quad>; <|object_ref_start|>, ...), which do not affect the
// conversation's form; so are marks of pictures and the template's own tokens. Other added tokens
// (<think>, <tool_call> of Qwen3) are tokens, as they are to Transformers. In place of `<image>`
// stand a picture's context tokens and the marks around them that the tokenizer has: `<img>`
// <IMG_CONTEXT> `</img>` (InternVL),
// `<image>` (LLaVA), or
// <|vision_start|> <|image_pad|> <|vision_end|> (Qwen2-VL); in place of `<video>`, where a turn has
// videos, likewise `<video>` or <|video_pad|>. Trained are an answer and the token that ends it,
// but not a token that the answer's beginning forms with the header before it (a line break with
// ChatML's): that is part of every prompt; with Qwen3's template the answer's thought too, an empty
// one where it has none, unless thinking is off: an empty one is then part of the prompt.
// Thread-safe.
class ChatTemplate {
 public:
  // Throws DataError when the tokenizer lacks a token of the template, ConfigError for an unknown
  // name. `system` replaces the template's own system text when not empty. `tokenizer` must outlive
  // this object. `image_token`: the context token of pictures that the model names; without one
  // among those that the tokenizer has, it is the first of them.
  ChatTemplate(const std::string& name, const std::string& system, const Tokenizer* tokenizer,
               int64_t image_token = -1, const ChatOptions& options = {});

  // Encodes `turns`, with `image_tokens[i]` context tokens for picture or video i. REQUIRES: as
  // many `<image>` and `<video>` in user turns (see PlaceImages). `with_answer_prompt` ends with
  // the start of an assistant turn (generation). Throws DataError for pictures when the tokenizer
  // lacks the tokens for them. `tools`, one description of a function a line, are put behind the
  // system text. REQUIRES: takes_tools() where there are any.
  EncodedConversation Encode(const std::vector<Turn>& turns,
                             const std::vector<int64_t>& image_tokens,
                             bool with_answer_prompt = false, std::string_view tools = {}) const;

  // The template as a program for Transformers' apply_chat_template (JinjaTemplate()).
  std::string Jinja() const;

  bool takes_tools() const { return form_->takes_tools; }

  // The context token of pictures, -1 where the tokenizer has none, and its text.
  int32_t image_token() const { return image_token_; }
  std::string_view image_token_text() const;
  // That of videos, -1 where the tokenizer has none, and its text.
  int32_t video_token() const { return video_token_; }
  std::string_view video_token_text() const;
  // The token that ends an answer; -1: the template has none.
  int32_t end_of_turn() const { return end_of_turn_; }
  // Changes with everything that Encode depends on.
  uint64_t fingerprint() const;

 private:
  class Writer;

  // A text of the template, cut at the tokenizer's added tokens.
  struct Piece {
    int32_t token;  // -1: text
    std::string text;
  };
  using Pieces = std::vector<Piece>;
  struct TurnPieces {
    Pieces before, after;
  };
  Pieces Cut(std::string_view text) const;
  TurnPieces Cut(const TurnForm& turn) const { return {Cut(turn.before), Cut(turn.after)}; }
  void FindImageTokens(int64_t named);
  void FindTokensOfTexts();

  const ChatTemplateForm* form_;
  std::string system_;
  const Tokenizer* tokenizer_;
  ChatOptions options_;
  bool other_begin_ = false;  // the tokenizer's own token in place of the form's
  int32_t end_of_turn_ = -1;
  int image_marks_ = -1;     // index of the tokens of pictures; -1: the tokenizer has none
  bool first_marks_ = true;  // it is the first that the tokenizer has
  int32_t image_token_ = -1, image_start_ = -1, image_end_ = -1, video_token_ = -1;
  AddedTokenFinder in_texts_;            // tokens that the texts of a record may hold
  std::vector<int32_t> added_in_texts_;  // those that are no grounding marks
  Pieces begin_, lead_, rest_, finish_;
  Pieces thought_;  // between the beginning of an answer and what is trained
  TurnPieces system_turn_, user_, answer_;
};

}  // namespace equipoise
