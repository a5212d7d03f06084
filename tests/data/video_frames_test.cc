#include "data/records/video_frames.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "data/records/record.h"
#include "data/records/refusal.h"
#include "data/records/sample_scanner.h"
#include "data/text/chat_template.h"
#include "tests/data/data_fixture.h"
#include "tests/data/tiny_tokenizer.h"

namespace equipoise {
namespace {

using Numbers = std::vector<int64_t>;
using Names = std::vector<std::string>;

TEST_CASE("frames are taken evenly, with the first and the last", "[data][cpu]") {
  CHECK(SampledFrames(5, 0) == Numbers{0, 1, 2, 3, 4});
  CHECK(SampledFrames(5, 7) == Numbers{0, 1, 2, 3, 4});
  CHECK(SampledFrames(10, 4) == Numbers{0, 3, 6, 9});
  CHECK(SampledFrames(6, 3) == Numbers{0, 2, 5});  // 2.5 goes to the even number
  CHECK(SampledFrames(100, 2) == Numbers{0, 99});
  CHECK(SampledFrames(9, 1) == Numbers{0});
}

TEST_CASE("of a video's file as many frames are taken as by Qwen's utilities", "[data][cpu]") {
  CHECK(FramesTaken(100, 25, 2, 0, 2) == 8);
  CHECK(FramesTaken(95, 25, 2, 0, 2) == 6);     // of 7.6 a whole number of pairs
  CHECK(FramesTaken(10, 10, 2, 0, 2) == 4);     // the least
  CHECK(FramesTaken(3, 10, 2, 0, 2) == 2);      // all but an odd one
  CHECK(FramesTaken(1, 10, 2, 0, 2) == 1);      // which they refuse
  CHECK(FramesTaken(30, 10, 100, 0, 2) == 30);  // no more than there are
  CHECK(FramesTaken(100'000, 25, 2, 0, 2) == 768);
  CHECK(FramesTaken(100'000, 25, 2, 1000, 2) == 1000);
  CHECK(FramesTaken(100, 10, 2, 5, 2) == 4);
  CHECK(FramesTaken(100, 10, 2, 1, 2) == 1);
  CHECK(FramesTaken(100, 10, 2, 5, 1) == 5);  // of a model that takes each frame by itself
  CHECK(FramesTaken(77, 10, 1, 0, 1) == 7);
}

TEST_CASE("a folder's pictures are listed in the order of their numbers", "[data][cpu]") {
  const TemporaryFolder temporary;
  for (const char* name : {"a/10.png", "a/9.png", "a/2.JPG", "a/1.jpeg", "a/010.png", "a/x.txt",
                           "a/.hidden.png", "empty/readme.md", "a/b/1.png", "clip.mp4"}) {
    std::filesystem::create_directories(
        std::filesystem::path(temporary / name).parent_path().string());
    temporary.Write(name, "x");
  }
  const ImageFolder folder(temporary / "");
  const FolderPictures found = folder.List("a");
  CHECK(found.reason.empty());
  CHECK(found.paths == Names{"a/1.jpeg", "a/2.JPG", "a/9.png", "a/010.png", "a/10.png"});
  CHECK(folder.Open(found.paths[0]).bytes == 1);

  const std::vector<std::tuple<const char*, Defect, const char*>> bad = {
      {"empty", Defect::kImageMissing, "empty: the folder holds no pictures; decode the video's"},
      {"clip.mp4", Defect::kBadField,
       "clip.mp4: is a file, and this program is built without what decodes videos; build it"},
      {"none", Defect::kImageMissing, "no such file in the image folder"},
      {"../a", Defect::kImageOutside, "leaves the image folder"},
      {"https://x.org/a.mp4", Defect::kImageOutside, "is a URL"}};
  for (const auto& [path, defect, words] : bad) {
    INFO(path);
    const FolderPictures refused = folder.List(path);
    INFO(refused.reason);
    CHECK(refused.defect == defect);
    CHECK(refused.reason.find(words) != std::string::npos);
    CHECK(refused.reason.find('\n') == std::string::npos);
  }
}

// A folder of five frames, c/0.png to c/4.png.
struct Clips {
  Clips() {
    for (int i = 0; i < 5; ++i)
      data.folder.Write("images/c/" + std::to_string(i) + ".png", TinyPng(14, 14));
  }

  Record Arranged(const std::string& line, const ImageSpec& images, int64_t most = 0) const {
    ParsedRecord parsed = ParseRecord(line);
    REQUIRE(parsed.reason.empty());
    ArrangeVideos(ImageFolder(data.folder / "images"), images, {most, {}}, parsed.record);
    return parsed.record;
  }

  DataFixture data;
};

const char kMixed[] = R"({"image":["x.png","y.png"],"videos":["c",["p.png"]],"fps":10,)"
                      R"("query":"<image> <video> <image><video> Q","response":"A"})";

TEST_CASE("a video of a model that takes none is pictures, a line each", "[data][cpu]") {
  const Record record = Clips().Arranged(kMixed, DataFixture::images(), 3);
  CHECK(record.images == Names{"x.png", "c/0.png", "c/2.png", "c/4.png", "y.png", "p.png"});
  CHECK(record.turns[0].text ==
        "<image> Frame-1: <image>\nFrame-2: <image>\nFrame-3: <image> <image>Frame-1: <image> Q");
  CHECK(record.videos.empty());
  CHECK_FALSE(record.turns[0].videos);
  CHECK(record.turns[0].frames);
  // Other brackets are text.
  const Record brackets = Clips().Arranged(
      R"({"image":"x.png","videos":[["p.png"]],"query":"< <video><<image>> <","response":"A"})",
      DataFixture::images());
  CHECK(brackets.turns[0].text == "< Frame-1: <image><<image>> <");
}

TEST_CASE("bytes of frames in the record stay with them", "[data][cpu]") {
  const Record record = Clips().Arranged(
      R"({"image":"x.png","video":[{"bytes":"Zm9v"},"q.png"],"query":"<video><image>",)"
      R"("response":"A"})",
      DataFixture::images());
  CHECK(record.held == Names{"foo", "", ""});
  CHECK(record.images[1] == "q.png");
  CHECK(record.images[2] == "x.png");
}

TEST_CASE("a video's frames are measured, and a bad video is a bad record", "[data][cpu]") {
  const Clips clips;
  SampleOptions options = clips.data.sample_options();
  options.max_frames = 4;
  const SampleScanner scanner(clips.data.config.train, options, &clips.data.chat_template);
  const ScannedSample good = scanner.Scan(0, R"({"video":"c","query":"What?","response":"A cat"})");
  CHECK(good.reason.empty());
  CHECK(good.pictures.size() == 4);
  CHECK(good.all_pictures().image_tokens == 4 * DataFixture::kTokensPerTile);
  // A frame has one tile, whatever its shape and however few there are; a picture beside it has its
  // tiles as before.
  const int64_t side = DataFixture::images().tile_size;
  for (const char* name : {"images/w/0.png", "images/w/1.png", "images/wide.png"})
    clips.data.folder.Write(name, TinyPng(3 * side, side));
  const auto tiles = [&](const std::string& record) {
    const ScannedSample scanned = scanner.Scan(0, record);
    INFO(scanned.reason);
    std::vector<int64_t> tiles;
    for (const PictureLoad& picture : scanned.pictures)
      tiles.push_back(DataFixture::images().TilesOf(picture.patches));
    return tiles;
  };
  REQUIRE(options.tiles.max >= 3);
  const std::vector<int64_t> picture =
      tiles(R"({"image":"wide.png","query":"What?","response":"A cat"})");
  REQUIRE(picture.size() == 1);
  CHECK(picture[0] >= 3);
  CHECK(tiles(R"({"video":"w","query":"What?","response":"A cat"})") == std::vector<int64_t>{1, 1});
  CHECK(tiles(R"({"video":"w","image":"wide.png","query":"<image><video>What?","response":"A"})") ==
        std::vector<int64_t>{picture[0], 1, 1});
  const ScannedSample bad =
      scanner.Scan(0, R"({"video":"one.png","query":"What?","response":"A cat"})");
  CHECK(bad.defect == Defect::kBadField);
}

TEST_CASE("frames of a video are no pictures beside a record's own", "[data][cpu]") {
  Clips clips;
  const Tokenizer tokenizer = ReadTokenizerJson(TinyVideoTokenizerJson());
  const ChatTemplate chat("chatml", "", &tokenizer);
  clips.data.folder.Write("images/wide.png", TinyPng(28, 14));
  SampleOptions options = clips.data.sample_options();
  ImageSpec& images = options.images;
  images.kind = ImageSpec::Kind::kAnyRes;
  images.rows_per_tile = images.tokens_per_tile = 81;
  images.resolutions = {{1, 2}};
  images.lone_tiles = true;
  images.videos.min_pixels = images.videos.max_pixels = 14 * 14;
  options.max_tokens = 450;  // less than the patches of six tiles
  const SampleScanner scanner(clips.data.config.train, options, &chat);
  const ScannedSample sample = scanner.Scan(
      0, R"({"video":"c","image":"wide.png","query":"<video><image>?","response":"A cat"})");
  INFO(sample.reason);
  REQUIRE(sample.reason.empty());
  // The only picture has tiles of its resolution: nine rows of 18 tokens and a vector.
  CHECK(sample.grids == std::vector<PatchGrid>{{0, 5}, {14, 28}});
  CHECK(sample.pictures[0] == PictureLoad{5 * 81, 5 * 81.0 * 81, 5 * 25 + 1});
  CHECK(sample.pictures[1] == PictureLoad{3 * 81, 3 * 81.0 * 81, 81 + 9 * 19});
  const ScannedSample squares = scanner.Scan(
      0, R"({"images":["wide.png","wide.png"],"query":"<image><image>?","response":"A cat"})");
  CHECK(squares.grids == std::vector<PatchGrid>{{-1, -82}, {-1, -82}});
}

}  // namespace
}  // namespace equipoise
