#pragma once

#include <string>
#include <string_view>

#include "configs/base/json.h"
#include "data/text/conversation.h"

namespace equipoise {

// Reads the list of turns under `key`, behind those that `record` has: objects {"from", "value"} or
// {"role", "content"} of one turn each, or {"human", "assistant"} of two (or "user", or "tool" for
// a function's result; "input" and "output" of XTuner, with a "system" in the first). Two turns of
// one speaker in a row are joined, without anything between, as ms-swift does. `text` of the whole
// record: where functions are called with objects, whose keys' order counts, it is read again.
// Throws Refusal.
void ReadTurns(const char* key, const Json& object, std::string_view text, Record& record);

// Makes turns begin with the user's, as the trainers do whose records these are: an answer at the
// beginning is one to an empty question (ms-swift); with `drop`, answers before the first question
// are left out instead (FastChat, LLaVA, InternVL), but not those that hold a place for a picture.
void BeginWithQuestion(bool drop, Record& record);

// The text of a key of `object`. Throws Refusal, with `where`, for anything else.
const std::string& TextOf(const Json& object, const char* key, const std::string& where);

}  // namespace equipoise
