#include "data/images/image_codec.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "tests/data/image_samples.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;
using Pixels = std::vector<uint8_t>;

Pixels Decode(const std::string& bytes, ImageLimits limits = {}) {
  const ImageHeader header = ParseImageHeader(bytes, limits);
  Pixels rgb(static_cast<size_t>(3 * header.size.width * header.size.height));
  DecodeRgb(bytes, header, rgb.data());
  return rgb;
}

// Why `bytes` are no picture; empty when they are one.
std::string Refusal(const std::string& bytes, ImageLimits limits = {}) {
  try {
    Decode(bytes, limits);
  } catch (const ImageError& error) {
    return error.what();
  }
  return "";
}

// The last scan of a JPEG so many times more.
std::string WithRepeatedScan(const std::string& jpeg, int times) {
  const size_t scan = jpeg.rfind("\xff\xda");
  const size_t end = jpeg.rfind("\xff\xd9");
  std::string bytes = jpeg.substr(0, end);
  for (int i = 0; i < times; ++i) bytes += jpeg.substr(scan, end - scan);
  return bytes + jpeg.substr(end);
}

TEST_CASE("a PNG gives back the pixels that were written", "[data][cpu]") {
  const Pixels rgb = Decode(MakePng({2, 2}));
  CHECK(rgb == Pixels{0, 0, 0, 3, 4, 5, 5, 4, 3, 17, 17, 17});
}

TEST_CASE("a picture of another size than announced is refused", "[data][cpu]") {
  Pixels rgb(3 * 100 * 100);
  const std::string jpeg = MakeJpeg({20, 10});
  const std::string png = MakePng({20, 10});
  CHECK_THROWS_AS(DecodeJpeg(jpeg, {10, 20}, rgb.data()), ImageError);
  CHECK_THROWS_AS(DecodePng(png, {10, 20}, rgb.data()), ImageError);
  CHECK_THROWS_AS(DecodePng(png, {30, 10}, rgb.data()), ImageError);
}

TEST_CASE("a file cut anywhere is refused, never half a picture", "[data][cpu]") {
  const std::string files[] = {MakeJpeg({40, 30}), MakeJpeg({40, 30}, {4, false, 0}),
                               MakeJpeg({40, 30}, {3, true, 0}), MakePng({40, 30})};
  for (const std::string& bytes : files) {
    REQUIRE(Refusal(bytes).empty());
    for (size_t length = 0; length < bytes.size(); ++length) {
      INFO(length << " of " << bytes.size());
      CHECK(!Refusal(bytes.substr(0, length)).empty());
    }
    CHECK(Refusal(bytes + "bytes behind the end").empty());
  }
}

TEST_CASE("sizes patched into a header end in an error", "[data][cpu]") {
  for (const ImageSize size : {ImageSize{41, 30}, {40, 64}, {3000, 3000}, {40, 4000}}) {
    CHECK_THAT(Refusal(WithPngSize(MakePng({40, 30}), size)), Contains("PNG cannot be decoded"));
  }
  for (const ImageSize size : {ImageSize{140, 30}, {40, 64}, {3000, 3000}, {40, 4000}}) {
    CHECK_THAT(Refusal(WithJpegSize(MakeJpeg({40, 30}), size)), Contains("JPEG cannot be decoded"));
  }
}

TEST_CASE("a JPEG of some scans is read, one of too many is refused", "[data][cpu]") {
  const std::string jpeg = MakeJpeg({16, 16}, {1, true, 0});
  CHECK(Decode(WithRepeatedScan(jpeg, 60)) == Decode(jpeg));
  CHECK_THAT(Refusal(WithRepeatedScan(jpeg, 110)),
             Contains("more scans than a picture of its size needs"));
}

// The same PNG with so many bytes more of compressed data behind those of its pixels.
std::string WithMoreData(const std::string& png, size_t count) {
  std::string chunk = "IDAT" + std::string(count, '\0');
  uint32_t crc = ~uint32_t{0};
  for (const char byte : chunk) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320 : 0);
  }
  const auto big_endian = [](uint32_t value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
    return bytes;
  };
  std::string bytes = png;
  bytes.insert(png.rfind("IEND") - 4,
               big_endian(static_cast<uint32_t>(count)) + chunk + big_endian(~crc));
  return bytes;
}

TEST_CASE("a PNG with data far beyond its pixels is refused", "[data][cpu]") {
  const std::string png = MakePng({64, 64});
  CHECK(Decode(WithMoreData(png, 10)) == Decode(png));
  CHECK_THAT(Refusal(WithMoreData(png, 1 << 20)), Contains("more data than its pixels need"));
}

TEST_CASE("flipped bits give a picture or an error, nothing else", "[data][cpu]") {
  std::mt19937 random(0);
  const std::string files[] = {MakeJpeg({33, 21}), MakeJpeg({33, 21}, {1, true, 0}),
                               MakeJpeg({33, 21}, {4, true, 0}), MakePng({33, 21})};
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string bytes = files[i % 4];
    for (int flip = 0; flip <= i % 3; ++flip) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    }
    refused += Refusal(bytes, {1 << 20, 1 << 20}).empty() ? 0 : 1;
  }
  CHECK(refused > 1000);
}

Pixels Resize(const Pixels& from, ImageSize from_size, ImageSize to_size) {
  Pixels to(static_cast<size_t>(3 * to_size.width * to_size.height));
  ResizeBicubicRgb(from.data(), from_size, to.data(), to_size);
  return to;
}

TEST_CASE("resize to the same size copies", "[data][cpu]") {
  const Pixels rgb = Decode(MakePng({31, 17}));
  CHECK(Resize(rgb, {31, 17}, {31, 17}) == rgb);
}

TEST_CASE("a window of a resized picture is that part of it, in planes", "[data][cpu]") {
  std::mt19937 random(1);
  const auto upto = [&](int64_t most) { return static_cast<int64_t>(random() % most) + 1; };
  const auto one_of = [&](int64_t side) { return random() % 4 == 0 ? side : upto(60); };
  for (int i = 0; i < 400; ++i) {
    const ImageSize from{upto(60), upto(i % 2 == 0 ? 60 : 300)};
    const ImageSize to{one_of(from.width), one_of(from.height)};
    const int64_t left = upto(to.width) - 1, top = upto(to.height) - 1;
    const ImageWindow window{left, top, {upto(to.width - left), upto(to.height - top)}};
    Pixels rgb(static_cast<size_t>(3 * from.width * from.height));
    for (uint8_t& byte : rgb) byte = static_cast<uint8_t>(random());
    const Pixels whole = Resize(rgb, from, to);
    Pixels wanted, found;
    for (int64_t y = 0; y < window.size.height; ++y) {
      for (int64_t channel = 0; channel < 3; ++channel) {
        for (int64_t x = left; x < left + window.size.width; ++x)
          wanted.push_back(whole[static_cast<size_t>(3 * ((top + y) * to.width + x) + channel)]);
      }
    }
    int64_t rows = 0;
    ResizePlanes(rgb.data(), from, to, ResizeFilter::kBicubic, window,
                 [&](int64_t y, const uint8_t* planes) {
                   CHECK(y == rows++);
                   found.insert(found.end(), planes, planes + 3 * window.size.width);
                 });
    CAPTURE(i, from.width, from.height, to.width, to.height);
    REQUIRE(found == wanted);
  }
}

TEST_CASE("a padded picture is resized as its copy would be", "[data][cpu]") {
  std::mt19937 random(3);
  const auto upto = [&](int64_t most) { return static_cast<int64_t>(random() % most) + 1; };
  for (int i = 0; i < 200; ++i) {
    const ImageSize size{upto(60), upto(60)};
    // Higher ones by far: their height is resized first.
    const ImageSize padded{size.width + upto(30) - 1,
                           size.height + upto(i % 2 == 0 ? 30 : 300) - 1};
    const ImageSize to{upto(60), upto(60)};
    Pixels rgb(static_cast<size_t>(3 * size.width * size.height)), copy;
    for (uint8_t& byte : rgb) byte = static_cast<uint8_t>(random());
    const PaddedPicture picture{rgb.data(), size, padded, {10, 200, 90}};
    const int64_t left = (padded.width - size.width) / 2, top = (padded.height - size.height) / 2;
    for (int64_t number = 0; number < 3 * padded.width * padded.height; ++number) {
      const int64_t x = number / 3 % padded.width - left, y = number / 3 / padded.width - top;
      const bool within = x >= 0 && x < size.width && y >= 0 && y < size.height;
      copy.push_back(within ? rgb[static_cast<size_t>((y * size.width + x) * 3 + number % 3)]
                            : picture.colour[static_cast<size_t>(number % 3)]);
    }
    Pixels found, wanted;
    const ResizeFilter filter = i % 3 == 0 ? ResizeFilter::kBilinear : ResizeFilter::kBicubic;
    const auto append = [&](Pixels& rows) {
      return [&](int64_t, const uint8_t* row) { rows.insert(rows.end(), row, row + 3 * to.width); };
    };
    ResizePaddedPlanes(picture, to, filter, {0, 0, to}, append(found));
    ResizePlanes(copy.data(), padded, to, filter, {0, 0, to}, append(wanted));
    CAPTURE(i, size.width, size.height, padded.width, padded.height);
    REQUIRE(found == wanted);
  }
}

TEST_CASE("resize keeps an even colour at any size", "[data][cpu]") {
  const int64_t sides[] = {1, 2, 3, 16, 17, 100};
  for (const int64_t width : sides) {
    for (const int64_t height : sides) {
      for (const int64_t to : sides) {
        const Pixels grey(static_cast<size_t>(3 * width * height), 200);
        const Pixels resized = Resize(grey, {width, height}, {to, 101 - to});
        CHECK(resized == Pixels(resized.size(), 200));
      }
    }
  }
}

// Resamples rows of `from.width` pixels, as Pillow does, one number at a time.
Pixels PlainWidth(const Pixels& rgb, ImageSize from, int64_t to) {
  const double scale = static_cast<double>(from.width) / static_cast<double>(to);
  const double widening = std::max(scale, 1.0);
  const auto cubic = [](double x) {
    x = std::abs(x);
    if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0;
  };
  Pixels result;
  for (int64_t i = 0; i < from.height * to * 3; ++i) {
    const int64_t y = i / 3 / to, x = i / 3 % to;
    const double centre = (static_cast<double>(x) + 0.5) * scale;
    const auto first = static_cast<int64_t>(std::trunc(std::max(centre - 2 * widening + 0.5, 0.0)));
    const auto end =
        std::min(static_cast<int64_t>(std::trunc(centre + 2 * widening + 0.5)), from.width);
    std::vector<double> weights;
    for (int64_t k = first; k < end; ++k)
      weights.push_back(cubic((static_cast<double>(k) - centre + 0.5) * (1 / widening)));
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    int64_t sum = 1 << 21;
    for (int64_t k = first; k < end; ++k) {
      const double weight = weights[static_cast<size_t>(k - first)] / all * (1 << 22);
      sum += std::lround(weight) * rgb[static_cast<size_t>((y * from.width + k) * 3 + i % 3)];
    }
    result.push_back(static_cast<uint8_t>(std::clamp<int64_t>(sum >> 22, 0, 255)));
  }
  return result;
}

// Columns as rows.
Pixels Turned(const Pixels& rgb, ImageSize size) {
  Pixels turned;
  for (int64_t i = 0; i < 3 * size.width * size.height; ++i) {
    const int64_t x = i / 3 / size.height, y = i / 3 % size.height;
    turned.push_back(rgb[static_cast<size_t>((y * size.width + x) * 3 + i % 3)]);
  }
  return turned;
}

TEST_CASE("resize gives the sums of its weights at any size", "[data][cpu]") {
  std::mt19937 random(2);
  const auto upto = [&](int64_t most) { return static_cast<int64_t>(random() % most) + 1; };
  int compared = 0;
  for (int i = 0; i < 300; ++i) {
    const ImageSize from{upto(90), upto(90)};
    const ImageSize to{upto(90), std::max<int64_t>(from.height / 3, upto(90))};
    if (from.width == to.width || from.height == to.height) continue;
    if (from.height - to.height > std::max<int64_t>(0, 2 * (from.width - to.width))) continue;
    Pixels rgb(static_cast<size_t>(3 * from.width * from.height));
    for (uint8_t& byte : rgb) byte = static_cast<uint8_t>(random());
    const ImageSize middle{to.width, from.height};
    const Pixels columns = Turned(PlainWidth(rgb, from, to.width), middle);
    const Pixels rows = PlainWidth(columns, {middle.height, middle.width}, to.height);
    CAPTURE(from.width, from.height, to.width, to.height);
    REQUIRE(Resize(rgb, from, to) == Turned(rows, {to.height, to.width}));
    ++compared;
  }
  CHECK(compared > 100);
}

// Three equal channels of `values`.
Pixels Grey(std::initializer_list<uint8_t> values) {
  Pixels pixels;
  for (const uint8_t value : values) pixels.insert(pixels.end(), 3, value);
  return pixels;
}

TEST_CASE("resize gives Pillow's values along both axes", "[data][cpu]") {
  const std::pair<Pixels, Pixels> cases[] = {
      {Grey({0, 0, 255, 255}), Grey({0, 0, 0, 52, 203, 255, 255, 255})},
      {Grey({10, 50, 200, 120}), Grey({6, 14, 31, 85, 176, 193, 138, 113})},
      {Grey({10, 50, 200, 120}), Grey({11, 129, 148})},
  };
  for (const auto& [from, to] : cases) {
    const int64_t before = static_cast<int64_t>(from.size()) / 3;
    const int64_t after = static_cast<int64_t>(to.size()) / 3;
    CHECK(Resize(from, {before, 1}, {after, 1}) == to);
    CHECK(Resize(from, {1, before}, {1, after}) == to);
  }
}

TEST_CASE("a size that a header claims in vain is refused, whatever the kind", "[data][cpu]") {
  const std::string files[] = {MakeWebp({20, 10}, true), MakeWebp({20, 10}, false),
                               MakeGif({20, 10}, true),  MakeBmp({20, 10}),
                               MakeBmpRuns({20, 10}),    MakeTiff({20, 10}, 1),
                               MakeTiff({20, 10}, 5),    MakeTiff({20, 10}, 7)};
  for (const std::string& bytes : files) {
    CHECK(Refusal(bytes).empty());
    const ImageHeader header = ParseImageHeader(bytes, {});
    CHECK(header.size == ImageSize{20, 10});
    for (const ImageSize other : {ImageSize{20, 9}, {10, 20}, {19, 10}}) {
      Pixels rgb(static_cast<size_t>(3 * 20 * 20));
      if (header.kind == ImageKind::kBmp) continue;  // its size stands in one place
      CHECK_THROWS_AS(DecodeRgb(bytes, {header.kind, other}, rgb.data()), ImageError);
    }
    for (size_t length = 0; length + 4 < bytes.size(); length += 3)
      CHECK(!Refusal(bytes.substr(0, length)).empty());
  }
  CHECK(ParseImageHeader(MakeTiff({20, 10}, 5, 6), {}).size == ImageSize{10, 20});
}

}  // namespace
}  // namespace equipoise
