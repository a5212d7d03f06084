#pragma once

#include <string>
#include <string_view>

#include "configs/base/json.h"
#include "data/text/conversation.h"

namespace equipoise {

// Reads the list of turns under `key`, behind those that `record` has: objects {"from", "value"} or
// {"role", "content"} of one turn each, or {"human", "assistant"} (or "user") of two. Two turns of
// one speaker in a row are joined, without anything between, as ms-swift does. `text` of the whole
// record: where functions are called with objects, whose keys' order counts, it is read again.
// Throws Refusal.
void ReadTurns(const char* key, const Json& object, std::string_view text, Record& record);

// Makes turns begin with the user's, as the trainers do whose records these are: an answer alone is
// one to an empty question (ms-swift's pretraining), answers before the first question are left out
// (FastChat, LLaVA, InternVL).
void BeginWithQuestion(Record& record);

// The text of a key of `object`. Throws Refusal, with `where`, for anything else.
const std::string& TextOf(const Json& object, const char* key, const std::string& where);

}  // namespace equipoise
