#pragma once

#include <cstdint>
#include <vector>

#include "data/images/image_size.h"
#include "data/records/path_guard.h"
#include "data/text/conversation.h"
#include "models/spec/image_spec.h"

namespace equipoise {

// Frames a second of a video whose record gives none: Transformers' processors take so many.
constexpr double kDefaultFps = 24;
// Frames a second that are taken of a video's file whose record does not say it.
constexpr double kTakenFps = 2;

// The numbers of at most `most` of `frames` frames, evenly over all with the first and the last; 0:
// all of them.
std::vector<int64_t> SampledFrames(int64_t frames, int64_t most);

// How many frames of a video's file are taken, as Qwen's utilities count (smart_nframes): `rate` a
// second of its `fps`, at least 4 and at most `most` (0: 768) of its `frames`, in whole steps of
// `step`; of fewer than a step one.
int64_t FramesTaken(int64_t frames, double fps, double rate, int64_t most, int64_t step);

// Which frames of videos are kept, and which files are opened.
struct VideoLimits {
  int64_t frames = 0;  // most of a video; 0: all, of a file 768
  ImageLimits files;
};

// Finds the frames of a record's videos, in their folders too, keeps those that `limits` allow, and
// puts pictures and frames in the order in which user turns show them. Of a file, where the program
// opens videos, frames are chosen by its own frame rate, and its bytes go to the record. For a
// model that takes no videos as such each `<video>` becomes a line `Frame-N: <image>` for each
// frame, as in InternVL's code, and the frames are pictures. For one with timestamps each of its
// times becomes a video of its own with its seconds before it. Throws Refusal.
void ArrangeVideos(const ImageFolder& folder, const ImageSpec& images, const VideoLimits& limits,
                   Record& record);

}  // namespace equipoise
