#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace equipoise {

// What stands around the text of one speaker's turn. Added tokens of the tokenizer in it are
// tokens, everything else is text, which is cut into words together with the turn's.
struct TurnForm {
  std::string_view before, after;
  bool trim = false;  // the turn's text without the white space around it
};

// Where a system text stands.
enum class SystemPlace : uint8_t {
  kTurn,       // in a turn of its own, the first
  kFirstUser,  // in the first user turn, before its text
  kLastUser,   // in the last user turn, before its text
};

// Thoughts of answers, `<think>` to `</think>` (data/text/thoughts.h): text as any; as Qwen3's,
// trained, an empty one where there is none; left out, and an empty one ends the prompt.
enum class Thinking : uint8_t { kNone, kOn, kOff };

// A chat template as data: the text of a conversation, and what of it is trained, which are the
// assistant's turns from `lead` to the end of `answer.after`.
struct ChatTemplateForm {
  std::string_view name;    // of data.template
  std::string_view system;  // where a record has none; empty: no system text then
  TurnForm system_turn, user, answer;
  std::string_view lead;         // before an answer; no part of the prompt for one
  std::string_view rest;         // after an answer, not trained
  std::string_view end_of_turn;  // the token in answer.after that ends an answer; empty: none
  std::string_view begin;        // before the first turn
  std::string_view finish;       // after the last turn of a whole conversation, not trained
  bool tokenizer_begin = false;  // Tokenizer::begin_token() before the first turn
  bool pictures_only = false;    // user turns without their text
  bool takes_tools = false;      // descriptions of functions behind the system text, as Qwen's
  Thinking thinking = Thinking::kNone;
  SystemPlace place = SystemPlace::kTurn;
  std::array<std::string_view, 4> tokens = {};  // that the tokenizer must have
  // Texts that all stand in a Jinja template of this form, and those that do not. A folder's
  // template is of the last form that fits; one without marks is never meant.
  std::array<std::string_view, 3> marks = {};
  std::array<std::string_view, 2> never = {};
  bool other_begin = false;  // Tokenizer::begin_token() in place of a `begin` that it lacks
};

}  // namespace equipoise
