#pragma once

#include <string>

#include "configs/base/json.h"
#include "data/text/conversation.h"

namespace equipoise {

// Appends a record's video: a file, a folder of its decoded frames, a list of them, or an object
// with one of "video", "frames" and "path", and perhaps "fps", which counts in place of `fps`.
// Listed frames go to the record's pictures. Throws Refusal; `what` names the value.
void AddVideo(const Json& value, const std::string& what, double fps, Record& record);

// The frames a second that a record, or a part of one, gives a video; 0: none. Throws
// Refusal.
double FpsOf(const Json& object);

// Reads the videos of the keys "video" and "videos", with "fps", and marks the user turns in which
// their `<video>` are; a single video without one is put before the first user turn. Throws
// Refusal.
void ReadVideos(const Json& object, Record& record);

}  // namespace equipoise
