#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>
#include <vector>

#include "data/images/image_codec.h"
#include "data/images/image_png_plain.h"
#include "tests/data/image_samples.h"
#include "tests/data/png_rows.h"

namespace equipoise {
namespace {

using Pixels = std::vector<uint8_t>;

// By DecodePlainPng; empty where that is false.
Pixels Plain(const std::string& png, ImageSize size) {
  Pixels rgb(static_cast<size_t>(3 * size.width * size.height));
  return DecodePlainPng(png, size, rgb.data()) ? rgb : Pixels{};
}

// By DecodePng; empty where that is refused.
Pixels Any(const std::string& png, ImageSize size) {
  Pixels rgb(static_cast<size_t>(3 * size.width * size.height));
  try {
    DecodePng(png, size, rgb.data());
  } catch (const ImageError&) {
    return {};
  }
  return rgb;
}

// What a filter adds to a byte, as the PNG specification says.
int Predicted(int filter, int left, int above, int corner) {
  const int sum = left + above - corner;
  const int to_left = std::abs(sum - left), to_above = std::abs(sum - above);
  const int to_corner = std::abs(sum - corner);
  switch (filter) {
    case 1:
      return left;
    case 2:
      return above;
    case 3:
      return (left + above) / 2;
    case 4:
      if (to_left <= to_above && to_left <= to_corner) return left;
      return to_above <= to_corner ? above : corner;
    default:
      return 0;
  }
}

// Rows of samples, each filtered by `filter`.
std::string Filtered(const std::string& samples, int64_t row_bytes, int channels, int filter) {
  std::string raw;
  const auto sample = [&](int64_t i) { return static_cast<uint8_t>(samples[i]); };
  for (int64_t i = 0; i < std::ssize(samples); ++i) {
    if (i % row_bytes == 0) raw += static_cast<char>(filter);
    const bool has_left = i % row_bytes >= channels, has_above = i >= row_bytes;
    const int left = has_left ? sample(i - channels) : 0;
    const int above = has_above ? sample(i - row_bytes) : 0;
    const int corner = has_left && has_above ? sample(i - row_bytes - channels) : 0;
    raw += static_cast<char>(sample(i) - Predicted(filter, left, above, corner));
  }
  return raw;
}

TEST_CASE("every filter is undone in every colour type", "[data][cpu]") {
  std::mt19937 random(0);
  const std::string palette = PngPalette();
  for (const int type : kPngColourTypes) {
    for (const ImageSize size : {ImageSize{1, 1}, {1, 7}, {9, 1}, {50, 40}, {257, 3}}) {
      const int channels = PngChannels(type);
      std::string samples(static_cast<size_t>(channels * size.width * size.height), '\0');
      // Neighbours that are equal, near and far.
      for (char& sample : samples)
        sample = static_cast<char>(random() % 2 == 0 ? random() : 100 + random() % 3);
      Pixels wanted;
      for (int64_t i = 0; i < size.width * size.height; ++i) {
        for (int64_t c = 0; c < 3; ++c) {
          const char byte = samples[i * channels + (type == 2 || type == 6 ? c : 0)];
          const auto index = static_cast<uint8_t>(byte);
          wanted.push_back(static_cast<uint8_t>(type == 3 ? palette[3 * index + c] : byte));
        }
      }
      for (int filter = 0; filter < 5; ++filter) {
        INFO("colour type " << type << " filter " << filter << " width " << size.width);
        const std::string raw = Filtered(samples, channels * size.width, channels, filter);
        CHECK(Plain(MakePngOfRows(type, size.width, raw), size) == wanted);
      }
    }
  }
}

TEST_CASE("rows of any bytes are read as libpng reads them", "[data][cpu]") {
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    const int type = kPngColourTypes[i % 5];
    const ImageSize size{1 + static_cast<int64_t>(random() % 40),
                         1 + static_cast<int64_t>(random() % 10)};
    const int64_t row_bytes = 1 + PngChannels(type) * size.width;
    std::string raw(static_cast<size_t>(row_bytes * size.height), '\0');
    for (char& byte : raw) byte = static_cast<char>(random());
    for (int64_t y = 0; y < size.height; ++y)
      raw[y * row_bytes] = static_cast<char>(random() % 50 == 0 ? random() : random() % 5);
    const Pixels plain = Plain(MakePngOfRows(type, size.width, raw), size);
    const std::string other = MakePngOfRows(type, size.width, raw, /*with_more=*/true);
    REQUIRE(Plain(other, size).empty());
    REQUIRE(Any(other, size) == plain);
    refused += plain.empty() ? 1 : 0;
  }
  CHECK(refused > 50);
}

// A file of these chunks.
std::string File(const std::vector<std::string>& chunks) {
  std::string bytes(kPngSignature);
  for (const std::string& chunk : chunks) bytes += chunk;
  return bytes;
}

std::string WithFlippedBit(std::string bytes, size_t from_end) {
  bytes[bytes.size() - from_end] = static_cast<char>(bytes[bytes.size() - from_end] ^ 1);
  return bytes;
}

struct Case {
  const char* name;
  std::string bytes;
  bool is_plain, is_read;
};

// Of 2 x 2 pixels.
std::vector<Case> Cases() {
  const std::string header = PngHeader(2, 2, PngForm(2)), end = PngChunk("IEND", "");
  const std::string raw = std::string("\0abcdef\0ghijkl", 14), data = PngDeflated(raw);
  const std::string pixels = PngChunk("IDAT", data), note = PngChunk("tEXt", "a");
  const std::string first = PngChunk("IDAT", data.substr(0, 5));
  const std::string second = PngChunk("IDAT", data.substr(5));
  const std::string indexed = PngHeader(2, 2, PngForm(3)), palette = PngChunk("PLTE", PngPalette());
  const std::string places = PngChunk("IDAT", PngDeflated(std::string("\0\0\1\0\2\3", 6)));
  const std::string odd = PngChunk("IDAT", PngDeflated(std::string("\0abcdef\5ghijkl", 14)));
  const std::string deep = PngHeader(2, 2, std::string{16, 0, 0, 0, 0});
  const std::string deep_pixels = PngChunk("IDAT", PngDeflated(std::string(10, '\0')));
  const std::string much = PngChunk("IDAT", std::string(100'000, 'a'));
  const std::string laced = PngHeader(2, 2, std::string{8, 2, 0, 0, 1});
  const std::string laced_raw = std::string("\0abc\0def\0ghijkl", 15);
  const std::string small_window = '\x08' + ("\x1d" + data.substr(2));
  return {
      {"plain", File({header, pixels, end}), true, true},
      {"in two parts", File({header, first, PngChunk("IDAT", ""), second, end}), true, true},
      {"with notes", File({header, note, pixels, note, end}), true, true},
      {"with a damaged note", File({header, WithFlippedBit(note, 1), pixels, end}), true, true},
      {"with bytes behind its end", File({header, pixels, end, "bytes"}), true, true},
      {"with pixels behind its end", File({header, pixels, end, pixels}), true, true},
      {"of a window of 256 bytes", File({header, PngChunk("IDAT", small_window), end}), true, true},
      {"with a palette", File({indexed, palette, places, end}), true, true},
      {"of 16 bits", File({deep, deep_pixels, end}), false, true},
      {"of 16 bits, with much data behind its end", File({deep, deep_pixels, end, much}), false,
       true},
      {"interlaced", File({laced, PngChunk("IDAT", PngDeflated(laced_raw)), end}), false, true},
      {"with a palette of no use", File({header, palette, pixels, end}), false, true},
      {"with a byte behind its data", File({header, PngChunk("IDAT", data + "a"), end}), false,
       true},
      {"with a note between data", File({header, first, note, second, end}), false, false},
      {"without its palette", File({indexed, places, end}), false, false},
      {"with its palette behind the data", File({indexed, places, palette, end}), false, false},
      {"with two palettes", File({indexed, palette, palette, places, end}), false, false},
      {"with half a colour", File({indexed, PngChunk("PLTE", "abcd"), places, end}), false, false},
      {"with a fifth filter", File({header, odd, end}), false, false},
      {"with too little data", File({header, first, end}), false, false},
      {"without data", File({header, end}), false, false},
      {"without an end", File({header, pixels}), false, false},
      {"without a header", File({pixels, end}), false, false},
      {"with two headers", File({header, header, pixels, end}), false, false},
      {"with a chunk that must be understood", File({header, PngChunk("ABCD", ""), pixels, end}),
       false, false},
      {"with a chunk of no name", File({header, PngChunk("a\1cd", ""), pixels, end}), false, false},
      {"with a damaged header", File({WithFlippedBit(header, 1), pixels, end}), false, false},
      {"with damaged data", File({header, WithFlippedBit(pixels, 1), end}), false, false},
      {"with a damaged end", File({header, pixels, WithFlippedBit(end, 1)}), false, false},
      {"with a damaged palette", File({indexed, WithFlippedBit(palette, 9), places, end}), false,
       false},
      {"of no colour type", File({PngHeader(2, 2, PngForm(1)), pixels, end}), false, false},
      {"of no compression", File({PngHeader(2, 2, std::string{8, 2, 1, 0, 0}), pixels, end}), false,
       false},
  };
}

TEST_CASE("what is not plain is libpng's to read or to refuse", "[data][cpu]") {
  for (const auto& [name, bytes, is_plain, is_read] : Cases()) {
    INFO("a PNG " << name);
    const Pixels plain = Plain(bytes, {2, 2}), any = Any(bytes, {2, 2});
    CHECK(plain.empty() == !is_plain);
    CHECK(any.empty() == !is_read);
    if (is_plain) CHECK(plain == any);
  }
}

TEST_CASE("a plain PNG cut anywhere is not plain", "[data][cpu]") {
  const std::string png = MakePng({40, 30});
  REQUIRE(!Plain(png, {40, 30}).empty());
  for (size_t length = 0; length < png.size(); ++length)
    REQUIRE(Plain(png.substr(0, length), {40, 30}).empty());
  CHECK(Plain(png, {30, 40}).empty());
}

TEST_CASE("a header of more pixels than its data takes no memory", "[data][cpu]") {
  Pixels rgb(3);  // not written to
  const std::string png = File({PngHeader(60000, 60000, PngForm(2)),
                                PngChunk("IDAT", PngDeflated("a")), PngChunk("IEND", "")});
  CHECK(!DecodePlainPng(png, {60000, 60000}, rgb.data()));
}

}  // namespace
}  // namespace equipoise
