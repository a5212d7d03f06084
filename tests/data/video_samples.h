#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace equipoise {

// A video that a test writes. Without a loss are "ffv1" (each frame a key frame), "qtrle" (MOV) and
// "libx264rgb" (frames from those before and behind); "mpeg4" is with one.
struct VideoSample {
  int width = 32, height = 24, frames = 10;
  std::string codec = "ffv1";
  int fps = 10;
  // Of each frame, in thousandths of a second; empty: evenly by `fps`.
  std::vector<int64_t> times;
  int key_every = 1000;
  int clockwise = 0;  // degrees that a player turns it, in MP4 and MOV
};

// The pixels of such a video's frame, rows of 3 * width bytes: they tell frame and place.
std::vector<uint8_t> SampleFrame(const VideoSample& sample, int frame);

// Writes frames of 3 * width * height bytes each into a file, whose name's end tells the container.
// Throws std::runtime_error.
void WriteVideo(const std::string& path, const VideoSample& sample,
                const std::vector<std::vector<uint8_t>>& frames);
// Likewise the sample's own frames.
void WriteVideo(const std::string& path, const VideoSample& sample);

}  // namespace equipoise
