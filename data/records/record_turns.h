#pragma once

#include <initializer_list>
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

// A list of objects that is stored as an object of lists, as the datasets library does in Parquet
// (a null for what no object has); null where it is none.
template <class AnyJson>
AnyJson Transposed(const AnyJson& lists) {
  AnyJson objects;
  for (const auto& [key, list] : lists.items()) {
    if (list.is_null()) continue;
    if (!list.is_array() || (!objects.is_null() && list.size() != objects.size())) return nullptr;
    if (objects.is_null()) objects = AnyJson(list.size(), AnyJson::object());
    for (size_t i = 0; i < list.size(); ++i) objects[i][key] = list[i];
  }
  return objects;
}

// Makes turns begin with the user's, as the trainers do whose records these are: an answer at the
// beginning is one to an empty question (ms-swift); with `drop`, answers before the first question
// are left out instead (FastChat, LLaVA, InternVL), but not those that hold a place for a picture.
void BeginWithQuestion(bool drop, Record& record);

// What an assistant's turn or a record's answer thought before its text, as Qwen3's template writes
// `reasoning_content` (in turns also under the first of `other` that has one); empty: nothing.
// Throws Refusal, with `where`, for what is no text.
std::string ThoughtOf(const Json& object, std::initializer_list<const char*> other,
                      const std::string& where);

// The text of a key of `object`. Throws Refusal, with `where`, for anything else.
const std::string& TextOf(const Json& object, const char* key, const std::string& where);

}  // namespace equipoise
