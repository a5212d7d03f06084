#include "data/images/image_size.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/data/image_samples.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;

// What ImageSizeOf says against `bytes`; empty when it accepts them.
std::string Refusal(const std::string& bytes, ImageLimits limits = {}) {
  try {
    ImageSizeOf(bytes, limits);
  } catch (const ImageError& error) {
    return error.what();
  }
  return "";
}

std::string FileRefusal(const std::string& path, ImageLimits limits = {}) {
  try {
    ReadImageSize(path, limits);
  } catch (const ImageError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("sizes come from the header, whatever the kind and form", "[data][cpu]") {
  const TemporaryFolder folder;
  for (const ImageSize size : {ImageSize{1, 1}, {1, 40}, {300, 1}, {65, 33}}) {
    const std::string files[] = {MakeJpeg(size), MakeJpeg(size, {1, false, 0}),
                                 MakeJpeg(size, {4, false, 0}), MakeJpeg(size, {3, true, 0}),
                                 MakePng(size)};
    for (const std::string& bytes : files) {
      CHECK(ImageSizeOf(bytes, {}) == size);
      CHECK(ReadImageSize(folder.Write("misnamed.gif", bytes), {}) == size);
    }
  }
}

TEST_CASE("a frame header far into the file is found", "[data][cpu]") {
  const TemporaryFolder folder;
  // Around the ends of the window that is read at once, and behind many segments.
  for (const int comment : {4090, 8100, 8130, 8150, 8160, 8170, 8180, 8190, 70'000, 1'000'000}) {
    const std::string jpeg = MakeJpeg({20, 10}, {3, false, comment});
    CHECK(ImageSizeOf(jpeg, {}) == ImageSize{20, 10});
    CHECK(ReadImageSize(folder.Write("a.jpg", jpeg), {}) == ImageSize{20, 10});
  }
}

TEST_CASE("fill bytes ahead of a marker are allowed, but not without end", "[data][cpu]") {
  std::string jpeg = MakeJpeg({20, 10});
  jpeg.insert(2, 100, '\xff');
  CHECK(ImageSizeOf(jpeg, {}) == ImageSize{20, 10});
  jpeg.insert(2, 1 << 20, '\xff');
  CHECK_THAT(Refusal(jpeg), Contains("damaged header"));
  std::string segments = "\xff\xd8";
  for (int i = 0; i < 100'000; ++i) segments += std::string("\xff\xfe\0\2", 4);
  CHECK_THAT(Refusal(segments), Contains("damaged header"));
}

TEST_CASE("other kinds of files are refused by name", "[data][cpu]") {
  const std::pair<std::string, std::string> cases[] = {
      {"", "is empty"},
      {std::string("RIFF\x10\0\0\0WEBPVP8 ", 16), "WebP"},
      {"GIF89a", "GIF is cut"},
      {std::string("II*\0", 4), "TIFF is cut"},
      {std::string("II+\0", 4), "BigTIFF"},
      {std::string("MM\0*", 4), "TIFF is cut"},
      {"BM123", "BMP is cut"},
      {std::string("\0\0\0\x18"
                   "ftypheic",
                   12),
       "HEIC"},
      {std::string("\0\0\0\x18"
                   "ftypavif",
                   12),
       "AVIF"},
      {"<svg xmlns='http://www.w3.org/2000/svg'>", "SVG"},
      {"<?xml version='1.0'?>\n<!-- made by hand -->\n<svg>", "SVG"},
      {"\xef\xbb\xbf \n<!DOCTYPE HTML><title>404</title>", "HTML"},
      {"<html>", "HTML"},
      {"{\"error\": 404}", "JSON"},
      {"%PDF-1.4", "PDF"},
      {"hello", "not a picture of a known kind"},
      {" \n ", "not a picture of a known kind"},
      {std::string(100, '\0'), "not a picture of a known kind"},
  };
  for (const auto& [bytes, what] : cases) CHECK_THAT(Refusal(bytes), Contains(what));
}

TEST_CASE("forms that no decoder reads are refused in the header", "[data][cpu]") {
  std::string jpeg = MakeJpeg({20, 10});
  const size_t frame = jpeg.find("\xff\xc0");
  const auto with = [&](size_t offset, char byte) {
    std::string changed = jpeg;
    changed[frame + offset] = byte;
    return changed;
  };
  CHECK_THAT(Refusal(with(1, '\xc3')), Contains("lossless"));
  CHECK_THAT(Refusal(with(1, '\xc5')), Contains("SOF5"));
  CHECK_THAT(Refusal(with(4, 12)), Contains("12 bits"));
  CHECK_THAT(Refusal(with(9, 2)), Contains("2 components"));
  CHECK_THAT(Refusal(with(0, 'x')), Contains("damaged header"));
}

TEST_CASE("limits are kept before anything is allocated", "[data][cpu]") {
  const std::string png = MakePng({20, 10});
  const std::string jpeg = MakeJpeg({20, 10});
  CHECK(Refusal(png, {200, 1 << 20}).empty());
  CHECK_THAT(Refusal(png, {199, 1 << 20}), Contains("20 x 10") && Contains("199"));
  CHECK_THAT(Refusal(png, {200, 50}), Contains("bytes, more than the limit of 50"));
  CHECK_THAT(Refusal(WithPngSize(png, {65536, 65536})), Contains("65536 x 65536"));
  CHECK_THAT(Refusal(WithPngSize(png, {0xffffffff, 0xffffffff})), Contains("impossible"));
  CHECK_THAT(Refusal(WithPngSize(png, {0x7fffffff, 0x7fffffff})), Contains("limit"));
  CHECK_THAT(Refusal(WithPngSize(png, {0, 10})), Contains("impossible"));
  CHECK_THAT(Refusal(WithJpegSize(jpeg, {65500, 65500})), Contains("65500 x 65500"));
  CHECK_THAT(Refusal(WithJpegSize(jpeg, {20, 0})), Contains("impossible"));
}

TEST_CASE("a header cut anywhere is an error", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string jpeg = MakeJpeg({20, 10});
  const std::string png = MakePng({20, 10});
  const size_t jpeg_header =
      jpeg.find("\xff\xc0") + 10;  // the number of components is the last byte
  for (size_t length = 0; length < jpeg_header; ++length) {
    CHECK(!Refusal(jpeg.substr(0, length)).empty());
    CHECK(!FileRefusal(folder.Write("a.jpg", jpeg.substr(0, length))).empty());
  }
  CHECK(Refusal(jpeg.substr(0, jpeg_header)).empty());
  for (size_t length = 0; length < 33; ++length) CHECK(!Refusal(png.substr(0, length)).empty());
  CHECK(Refusal(png.substr(0, 33)).empty());
}

TEST_CASE("a flipped bit in PNG's header is seen", "[data][cpu]") {
  const std::string png = MakePng({20, 10});
  for (size_t bit = 0; bit < 33 * 8; ++bit) {
    std::string flipped = png;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    INFO(bit);
    CHECK(!Refusal(flipped).empty());
  }
}

TEST_CASE("paths that are no regular file are refused at once", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string pipe = folder.path() + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& path : {pipe, folder.path(), std::string("/dev/zero")}) {
    CHECK_THAT(FileRefusal(path),
               Contains(path + ": is not a regular file") || Contains(path + ": is a folder"));
    CHECK_THROWS_AS(ReadImageFile(path, {}), ImageError);
  }
  CHECK_THAT(FileRefusal(folder.path() + "/none"), Contains("No such file"));
  CHECK_THAT(FileRefusal(std::string(5000, 'x')), Contains("cannot be opened"));
  CHECK_THAT(FileRefusal(std::string("a\0b", 3)), Contains("a?b: the path holds a zero byte"));
  CHECK_THAT(FileRefusal("no\nsuch"), Contains("no?such: "));
  CHECK_THAT(FileRefusal(folder.Write("empty.jpg", "")), Contains("is empty"));
}

TEST_CASE("a file is read whole, within its limit", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string bytes = MakePng({100, 100});
  const std::string path = folder.Write("a.png", bytes);
  CHECK(ReadImageFile(path, {}) == bytes);
  std::filesystem::create_symlink(path, folder.path() + "/link.png");
  CHECK(ReadImageFile(folder.path() + "/link.png", {}) == bytes);
  const ImageLimits limits{1 << 20, static_cast<int64_t>(bytes.size()) - 1};
  CHECK_THROWS_WITH(ReadImageFile(path, limits), Contains("data.limits.image_bytes"));
  CHECK_THAT(FileRefusal(path, limits), Contains("data.limits.image_bytes"));
}

}  // namespace
}  // namespace equipoise
