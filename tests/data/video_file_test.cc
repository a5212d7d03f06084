// Videos that the test writes, read by what a program with FFmpeg links.
#include "data/videos/video_file.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/data/temporary_folder.h"
#include "tests/data/video_samples.h"

namespace equipoise {
namespace {

using Pixels = std::vector<uint8_t>;

std::string Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Made(const std::string& end, const VideoSample& sample) {
  const TemporaryFolder folder;
  WriteVideo(folder / ("a." + end), sample);
  return Bytes(folder / ("a." + end));
}

Pixels Decoded(VideoFile& video, int64_t number) {
  Pixels rgb(static_cast<size_t>(3 * video.size().width * video.size().height));
  video.Decode(number, rgb.data());
  return rgb;
}

// The fault of a file; of a sound one none.
std::string FaultOf(const std::string& bytes, const ImageLimits& limits = {}) {
  try {
    const auto video = OpenVideo(bytes, limits);
    for (int64_t i = 0; i < video->frames(); ++i) Decoded(*video, i);
  } catch (const ImageError& error) {
    return error.what();
  }
  return "";
}

struct Form {
  const char *end, *codec;
  int key_every;
};

// Without a loss: each frame by itself, frames from those before, frames from those on both sides.
const std::vector<Form> kForms = {{"mkv", "ffv1", 1},       {"avi", "ffv1", 1},
                                  {"mov", "qtrle", 4},      {"mp4", "libx264rgb", 4},
                                  {"mkv", "libx264rgb", 4}, {"mp4", "libx264rgb", 1000}};

TEST_CASE("frames of a video have the pixels that were written, in any order", "[data][cpu]") {
  CHECK(OpensVideos());
  for (const auto& [end, codec, key_every] : kForms) {
    INFO(end << " " << codec << " " << key_every);
    VideoSample sample;
    sample.codec = codec;
    sample.key_every = key_every;
    const std::string bytes = Made(end, sample);
    const auto video = OpenVideo(bytes, {});
    CHECK(video->frames() == 10);
    CHECK(video->fps() == Approx(10));
    CHECK(video->size() == ImageSize{32, 24});
    for (const int number : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 0, 5, 5, 9, 2, 8}) {
      INFO(number);
      CHECK(Decoded(*video, number) == SampleFrame(sample, number));
    }
    CHECK_THROWS_AS(Decoded(*video, 10), ImageError);
  }
}

TEST_CASE("frames far apart in a long video are those at their numbers", "[data][cpu]") {
  for (const char* end : {"mp4", "mkv"}) {
    VideoSample sample;
    sample.codec = "libx264rgb";
    sample.frames = 200;
    sample.key_every = 12;
    const std::string bytes = Made(end, sample);
    for (const int step : {7, 12, 30, 66, 199}) {
      const auto video = OpenVideo(bytes, {});
      REQUIRE(video->frames() == 200);
      for (int number = 0; number < 200; number += step) {
        INFO(end << " " << number);
        REQUIRE(Decoded(*video, number) == SampleFrame(sample, number));
      }
    }
  }
}

TEST_CASE("frames that are not evenly apart are counted as they are shown", "[data][cpu]") {
  for (const char* end : {"mp4", "mkv"}) {
    INFO(end);
    VideoSample sample;
    sample.codec = "libx264rgb";
    sample.times = {0, 100, 150, 700, 1000, 2000};
    sample.frames = 6;
    const std::string bytes = Made(end, sample);
    const auto video = OpenVideo(bytes, {});
    CHECK(video->frames() == 6);
    CHECK(video->fps() > 0);
    for (const int number : {0, 3, 4, 5})
      CHECK(Decoded(*video, number) == SampleFrame(sample, number));
  }
}

TEST_CASE("a video is turned as its head says", "[data][cpu]") {
  for (const int degrees : {90, 180, 270}) {
    INFO(degrees);
    VideoSample sample;
    sample.codec = "libx264rgb";
    sample.clockwise = degrees;
    const std::string bytes = Made("mp4", sample);
    const auto video = OpenVideo(bytes, {});
    const Pixels from = SampleFrame(sample, 3), to = Decoded(*video, 3);
    const int64_t width = 32, height = 24;
    CHECK(video->size() == (degrees == 180 ? ImageSize{width, height} : ImageSize{height, width}));
    bool right = true;
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const int64_t column = degrees == 90 ? height - 1 - y : degrees == 180 ? width - 1 - x : y;
        const int64_t row = degrees == 90 ? x : degrees == 180 ? height - 1 - y : width - 1 - x;
        right =
            right &&
            std::memcmp(&from[static_cast<size_t>(3 * (y * width + x))],
                        &to[static_cast<size_t>(3 * (row * video->size().width + column))], 3) == 0;
      }
    }
    CHECK(right);
  }
  VideoSample askew;
  askew.codec = "libx264rgb";
  askew.clockwise = 30;
  CHECK(FaultOf(Made("mp4", askew)).find("no multiple of 90 degrees") != std::string::npos);
}

TEST_CASE("colours in luma and chroma become RGB", "[data][cpu]") {
  VideoSample sample;
  sample.codec = "mpeg4";
  sample.frames = 3;
  Pixels frame;
  for (int i = 0; i < sample.width * sample.height; ++i) frame.insert(frame.end(), {200, 60, 120});
  const TemporaryFolder folder;
  WriteVideo(folder / "a.mp4", sample, {frame, frame, frame});
  const std::string bytes = Bytes(folder / "a.mp4");
  const auto video = OpenVideo(bytes, {});
  const Pixels given = Decoded(*video, 1);
  int worst = 0;
  for (size_t i = 0; i < given.size(); ++i) worst = std::max(worst, std::abs(given[i] - frame[i]));
  CHECK(worst <= 4);
}

TEST_CASE("what is no video is refused in a line", "[data][cpu]") {
  VideoSample sample;
  sample.codec = "libx264rgb";
  const std::string good = Made("mp4", sample);
  std::string huge = good;
  const size_t entry = huge.find("avc1", huge.find("stsd"));
  REQUIRE(entry != std::string::npos);
  huge.replace(entry + 28, 4, "\xff\xff\xff\xff");  // width and height
  VideoSample none = sample;
  none.frames = 0;
  const std::vector<std::tuple<std::string, std::string, const char*>> cases = {
      {"nothing", "", "is empty"},
      {"text", "this is no video, it is a text of some length", "is no video that is read"},
      {"a list of other files", "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n/etc/passwd\n",
       "is no video that is read"},
      {"a list of ffconcat", "ffconcat version 1.0\nfile '/etc/passwd'\n", "is no video"},
      {"a head alone", good.substr(0, 40), ""},
      {"no frames in Matroska", Made("mkv", none), ""},
      {"no frames in MP4", Made("mp4", none), ""},
      {"a huge size", huge, "65535 x 65535 is more than data.limits.image_pixels"}};
  for (const auto& [name, bytes, words] : cases) {
    const std::string fault = FaultOf(bytes);
    INFO(name << ": " << fault);
    CHECK_FALSE(fault.empty());
    CHECK(fault.find(words) != std::string::npos);
    CHECK(fault.find('\n') == std::string::npos);
  }
  CHECK_THROWS_AS(OpenVideo(huge, {}), VideoTooLarge);
  CHECK_THROWS_AS(OpenVideo(good, {32 * 24 - 1, 1 << 20}), VideoTooLarge);
  CHECK(FaultOf(good, {32 * 24, 1 << 20}).empty());
}

// Of a damaged file: the frames that it gives, of which none may be another than was written.
void CheckCut(const std::string& bytes, const VideoSample& sample) {
  try {
    const auto video = OpenVideo(bytes, {});
    for (int64_t i = 0; i < video->frames(); ++i)
      CHECK(Decoded(*video, i) == SampleFrame(sample, static_cast<int>(i)));
    CHECK(video->frames() < sample.frames);
  } catch (const ImageError& error) {
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
  }
}

TEST_CASE("a video that is cut is refused, or ends sooner", "[data][cpu]") {
  for (const auto& [end, codec, key_every] : kForms) {
    VideoSample sample;
    sample.codec = codec;
    sample.key_every = key_every;
    const std::string bytes = Made(end, sample);
    for (size_t i = 1; i < 40; ++i) {
      INFO(end << " " << codec << " " << i);
      CheckCut(bytes.substr(0, bytes.size() * i / 40), sample);
    }
  }
}

TEST_CASE("bytes of a video that are changed end nothing", "[data][cpu]") {
  std::mt19937 random(3);
  int refused = 0;
  for (const auto& [end, codec, key_every] : kForms) {
    VideoSample sample;
    sample.codec = codec;
    sample.key_every = key_every;
    const std::string bytes = Made(end, sample);
    for (int i = 0; i < 60; ++i) {
      std::string changed = bytes;
      for (int k = 0; k < 4; ++k) changed[random() % changed.size()] = static_cast<char>(random());
      refused += FaultOf(changed).empty() ? 0 : 1;
    }
  }
  CHECK(refused > 0);
}

}  // namespace
}  // namespace equipoise
