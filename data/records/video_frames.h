#pragma once

#include <cstdint>
#include <vector>

#include "data/records/path_guard.h"
#include "data/text/conversation.h"
#include "models/spec/image_spec.h"

namespace equipoise {

// Frames a second of a video whose record gives none: Transformers' processors take so many.
constexpr double kDefaultFps = 24;

// The numbers of at most `most` of `frames` frames, evenly over all with the first and the last; 0:
// all of them.
std::vector<int64_t> SampledFrames(int64_t frames, int64_t most);

// Finds the frames of a record's videos, in their folders too, keeps at most `most_frames` of each,
// and puts pictures and frames in the order in which user turns show them. For a model that takes
// no videos as such each `<video>` becomes a line `Frame-N: <image>` for each frame, as in
// InternVL's code, and the frames are pictures. For one with timestamps each of its times becomes a
// video of its own with its seconds before it. Throws Refusal.
void ArrangeVideos(const ImageFolder& folder, const ImageSpec& images, int64_t most_frames,
                   Record& record);

}  // namespace equipoise
