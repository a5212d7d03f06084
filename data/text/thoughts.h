#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/text/conversation.h"

namespace equipoise {

// Thoughts of answers, `<think>` to `</think>`, as Qwen3's chat template treats them.

// What Qwen3's template ends a prompt with where an answer is to have no thought.
inline constexpr std::string_view kNoThought = "<think>\n\n</think>\n\n";

// An answer as the template writes the last of a conversation: behind its thought, which is an
// empty one where it has none. A thought may lack its `<think>`, which prompts of models that
// always think end with. A text that is not one thought and what follows (one that begins
// otherwise, two thoughts, one that does not end) stays as it is.
std::string WithThought(std::string_view answer);

// What stands behind the last thought, as the template writes answers to earlier questions; the
// whole text where none ends in it.
std::string_view WithoutThought(std::string_view answer);

// What an answer says behind its thoughts; nothing where its thought does not end.
std::string_view BehindThought(std::string_view answer);

// The place of the last question, a user's turn that is no function's result; their number where
// there is none.
size_t LastQuestion(const std::vector<Turn>& turns);

// An answer of Qwen3's template: what is trained is WithThought(), an answer to an earlier question
// WithoutThought(). Any other, between calls of functions, has the thought that it came with, but
// no empty one.
std::string QwenAnswer(std::string_view answer, bool trained, bool earlier);

}  // namespace equipoise
