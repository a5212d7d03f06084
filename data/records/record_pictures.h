#pragma once

#include <string>
#include <vector>

#include "configs/base/json.h"
#include "data/text/conversation.h"

namespace equipoise {

// Appends a record's picture: a path, a data URL ("data:image/png;base64,..."), its Base64 alone,
// or an object with one of "path", "bytes" (base64), "url" and "image". Throws Refusal for anything
// else; `what` names the value.
void AddPicture(const Json& value, const std::string& what, Record& record);

// Reads the pictures of the keys "image" and "images". Throws Refusal.
void ReadPictures(const Json& object, Record& record);

// Takes the pictures that questions show as Qwen-VL's records do, <img>PATH</img>, where the record
// has no others; what does not end as the name of a picture stays text.
void TakePathsInText(Record& record);

// True for null, an empty text and an empty list.
bool IsEmpty(const Json& value);

}  // namespace equipoise
