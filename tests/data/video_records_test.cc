// Records of videos' files, in a program that opens them: as those of the same frames in a list.
#include <ATen/ops/equal.h>
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/images/image.h"
#include "data/loading/loader.h"
#include "data/records/record.h"
#include "data/records/refusal.h"
#include "data/records/video_frames.h"
#include "tests/data/data_fixture.h"
#include "tests/data/video_samples.h"

namespace equipoise {
namespace {

using Names = std::vector<std::string>;

// Twelve frames, f/0.png to f/11.png, and c.mp4 of them, four a second.
struct Clip {
  Clip() {
    VideoSample sample;
    sample.codec = "libx264rgb";
    sample.width = 28;
    sample.height = 14;
    sample.fps = 4;
    sample.key_every = 5;
    std::vector<std::vector<uint8_t>> frames;
    for (int i = 0; i < 12; ++i) {
      const std::string png = TinyPng(28, 14, static_cast<uint8_t>(20 * i));
      data.folder.Write("images/f/" + std::to_string(i) + ".png", png);
      const at::Tensor image = DecodeImage(png, {});
      const uint8_t* rgb = image.const_data_ptr<uint8_t>();
      frames.emplace_back(rgb, rgb + image.numel());
    }
    WriteVideo(data.folder / "images/c.mp4", sample, frames);
  }

  Record Arranged(const std::string& line, const ImageSpec& images,
                  const VideoLimits& limits = {}) const {
    ParsedRecord parsed = ParseRecord(line);
    REQUIRE(parsed.reason.empty());
    ArrangeVideos(ImageFolder(data.folder / "images"), images, limits, parsed.record);
    return parsed.record;
  }
  std::string Fault(const std::string& line, const VideoLimits& limits = {}) const {
    const ParsedRecord parsed =
        Guarded([&](Record& record) { record = Arranged(line, DataFixture::images(), limits); });
    return std::string(DefectName(parsed.defect)) + ": " + parsed.reason;
  }

  DataFixture data;
};

ImageSpec PairedFrames() {
  ImageSpec images;
  images.kind = ImageSpec::Kind::kNative;
  images.patch_size = 14;
  images.frames = 2;
  images.rows_per_tile = images.tokens_per_tile = 1;
  images.videos.max_pixels = 1 << 20;
  return images;
}

std::vector<int64_t> Numbers(const Record& record) {
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < record.images.size(); ++i) {
    const FileFrame* frame = record.FrameOfFile(i);
    numbers.push_back(frame == nullptr ? -1 : frame->number);
  }
  return numbers;
}

TEST_CASE("frames of a file are chosen by its own rate", "[data][cpu]") {
  const Clip clip;
  const char line[] =
      R"({"video":"c.mp4","image":"x.png","query":"<video><image>","response":"A"})";
  const Record record = clip.Arranged(line, PairedFrames());  // three seconds, two frames each
  CHECK(Numbers(record) == std::vector<int64_t>{0, 2, 4, 7, 9, 11, -1});
  CHECK(record.images[1] == "c.mp4");
  CHECK(record.images[6] == "x.png");
  CHECK_FALSE(record.held[0].empty());  // the file
  CHECK(record.held[1].empty());
  REQUIRE(record.videos.size() == 1);
  CHECK(record.videos[0].frames == 6);
  CHECK(record.videos[0].fps == Approx(2));
  CHECK(record.file_frames[3].width == 28);
  CHECK(record.file_frames[3].height == 14);

  ImageSpec timed = PairedFrames();
  timed.videos.timestamps = true;
  const Record in_parts = clip.Arranged(line, timed);
  CHECK(in_parts.turns[0].text ==
        "<0.2 seconds><video><1.4 seconds><video><2.5 seconds><video><image>");
  const char often[] = R"({"video":{"path":"c.mp4","fps":4},"query":"Q","response":"A"})";
  CHECK(clip.Arranged(often, PairedFrames()).images.size() == 12);
  CHECK(Numbers(clip.Arranged(often, PairedFrames(), {5, {}})) ==
        std::vector<int64_t>{0, 4, 7, 11});
}

TEST_CASE("records with the file and with its frames are loaded alike", "[data][cpu]") {
  Clip clip;
  clip.data.config.max_tokens = 512;
  clip.data.WriteRecords(
      {R"({"video":"c.mp4","query":"What?","response":"A cat"})",
       R"({"video":["f/0.png","f/2.png","f/4.png","f/7.png","f/9.png","f/11.png"],)"
       R"("query":"What?","response":"A cat"})",
       R"({"videos":["c.mp4","c.mp4"],"fps":[1,1],"query":"<video><video>?","response":"A cat"})",
       R"({"video":"c.mp4","fps":1,"query":"What?","response":"A cat"})"});
  const CostIndex index = clip.data.Open();
  const Dataset dataset(clip.data.config.train, clip.data.sample_options(), &index,
                        &clip.data.chat_template);
  for (int64_t i = 0; i < 4; ++i) {
    const ScannedSample checked = dataset.Check(i);
    INFO(checked.reason);
    CHECK(checked.defect == Defect::kNone);
  }
  const auto load = [&](int64_t sample) {
    return dataset.Load(MakePack(index, std::vector<int64_t>{sample}, LossWeight::kToken));
  };
  const LoadedPack file = load(0), list = load(1), both = load(2), one = load(3);
  CHECK(file.bad.empty());
  CHECK(at::equal(file.batch.pixel_values, list.batch.pixel_values));
  CHECK(at::equal(file.batch.input_ids, list.batch.input_ids));
  CHECK(both.bad.empty());
  const int64_t tiles = one.batch.pixel_values.size(0);
  REQUIRE(both.batch.pixel_values.size(0) == 2 * tiles);
  for (const int64_t first : {int64_t{0}, tiles})
    CHECK(at::equal(both.batch.pixel_values.narrow(0, first, tiles), one.batch.pixel_values));
}

// A member of a tar archive: header and padded bytes.
std::string TarMemberOf(const std::string& name, const std::string& bytes) {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  put(0, name);
  put(100, "0000644");
  put(124, fmt::format("{:011o}", bytes.size()));
  put(148, "        ");
  put(156, "0");
  put(257, std::string("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return header + bytes + std::string((512 - bytes.size() % 512) % 512, '\0');
}

TEST_CASE("a shard with the file is loaded as the file is", "[data][cpu]") {
  Clip clip;
  clip.data.config.max_tokens = 512;
  const std::string video = ReadWholeFile(clip.data.folder / "images/c.mp4");
  clip.data.folder.Write(
      "train.tar", TarMemberOf("0.mp4", video) + TarMemberOf("0.txt", "A cat") +
                       TarMemberOf("1.mp4", video) +
                       TarMemberOf("1.json", R"({"video":"1.mp4","query":"","response":"A cat"})") +
                       std::string(1024, '\0'));
  const auto load = [&](int64_t sample) {
    const CostIndex index = clip.data.Open();
    const Dataset dataset(clip.data.config.train, clip.data.sample_options(), &index,
                          &clip.data.chat_template);
    LoadedPack pack =
        dataset.Load(MakePack(index, std::vector<int64_t>{sample}, LossWeight::kToken));
    CHECK(pack.bad.empty());
    return pack.batch;
  };
  clip.data.WriteRecords({R"({"video":"c.mp4","query":"<video>","response":"A cat"})"});
  const auto file = load(0);
  clip.data.config.train[0].annotations = clip.data.folder / "train.tar";
  for (const int64_t sample : {0, 1}) {
    const auto shard = load(sample);
    CHECK(at::equal(shard.pixel_values, file.pixel_values));
    if (sample == 0) CHECK(at::equal(shard.input_ids, file.input_ids));
  }
}

TEST_CASE("a bad file is a bad record", "[data][cpu]") {
  Clip clip;
  clip.data.folder.Write("images/a.mp4", "no video");
  const auto record = [](const std::string& path) {
    return R"({"video":")" + path + R"(","query":"Q","response":"A"})";
  };
  CHECK(clip.Fault(record("a.mp4")).find("image_unreadable: a.mp4: is no video that is read") == 0);
  CHECK(clip.Fault(record("none.mp4")).find("image_missing: none.mp4: no such file") == 0);
  CHECK(clip.Fault(record("../c.mp4")).find("image_outside: ") == 0);
  CHECK(clip.Fault(record("c.mp4"), {0, {28 * 14 - 1, 1 << 20}})
            .find("image_too_large: c.mp4: 28 x 14 is more than data.limits.image_pixels") == 0);
  CHECK(clip.Fault(record("c.mp4"), {0, {1 << 20, 100}})
            .find("image_too_large: c.mp4: larger than data.limits.image_bytes") == 0);
  CHECK(clip.Fault(record("f")).find("none: ") == 0);  // a folder as before
}

}  // namespace
}  // namespace equipoise
