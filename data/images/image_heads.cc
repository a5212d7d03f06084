#include "data/images/image_heads.h"

#include <fmt/format.h>

#include <optional>

namespace equipoise {
namespace {

[[noreturn]] void Cut(const char* kind) {
  throw ImageError(fmt::format("{} is cut in its header", kind));
}

[[noreturn]] void Damaged(const char* kind) {
  throw ImageError(fmt::format("{} has a damaged header", kind));
}

// The offset behind the blocks of GIF data that begin at `offset`.
int64_t SkipGifBlocks(HeadReader& reader, int64_t offset) {
  for (;;) {
    const int length = reader.Byte(offset);
    if (length < 0) Cut("GIF");
    offset += 1 + length;
    if (length == 0) return offset;
  }
}

// A tag of a TIFF's first directory that is a number; nullopt where it is absent.
class TiffDirectory {
 public:
  explicit TiffDirectory(HeadReader& reader)
      : reader_(reader), big_endian_(reader.Byte(0) == 'M'), begin_(Get(4, 4)) {
    count_ = Get(begin_, 2);
    if (begin_ < 8) Damaged("TIFF");
  }
  std::optional<int64_t> Find(int64_t wanted) const {
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t entry = begin_ + 2 + 12 * i;
      if (Get(entry, 2) != wanted) continue;
      const int64_t type = Get(entry + 2, 2);
      if (Get(entry + 4, 4) != 1 || (type != 1 && type != 3 && type != 4)) Damaged("TIFF");
      return Get(entry + 8, type == 1 ? 1 : type == 3 ? 2 : 4);
    }
    return std::nullopt;
  }

 private:
  int64_t Get(int64_t offset, int64_t bytes) const {
    const int64_t value = reader_.Number(offset, bytes, big_endian_);
    if (value < 0) Cut("TIFF");
    return value;
  }

  HeadReader& reader_;
  bool big_endian_;
  int64_t begin_, count_ = 0;
};

}  // namespace

ImageSize ParseWebp(HeadReader& reader) {
  const std::string_view head = reader.Get(0, 30);
  if (head.size() < 30) Cut("WebP");
  const std::string_view chunk = head.substr(12, 4);
  if (chunk == "VP8X") return {reader.Number(24, 3) + 1, reader.Number(27, 3) + 1};
  if (chunk == "VP8L") {
    const int64_t bits = reader.Number(21, 4);
    if (reader.Byte(20) != 0x2f) Damaged("WebP");
    return {(bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1};
  }
  const bool sound = chunk == "VP8 " && head.substr(23, 3) == "\x9d\x01\x2a";
  if (!sound) Damaged("WebP");
  return {reader.Number(26, 2) & 0x3fff, reader.Number(28, 2) & 0x3fff};
}

ImageSize ParseGif(HeadReader& reader) {
  constexpr int kMostBlocks = 1 << 12;  // before the first frame
  ImageSize size{reader.Number(6, 2), reader.Number(8, 2)};
  const int flags = reader.Byte(10);
  if (flags < 0) Cut("GIF");
  int64_t offset = 13 + ((flags & 0x80) != 0 ? int64_t{6} << (flags & 7) : 0);
  for (int block = 0; block < kMostBlocks; ++block) {
    const int kind = reader.Byte(offset);
    if (kind == '!') {
      offset = SkipGifBlocks(reader, offset + 2);
      continue;
    }
    if (kind < 0) Cut("GIF");
    if (kind != ',') throw ImageError("GIF has no frame");
    if (reader.Byte(offset + 9) < 0) Cut("GIF");
    const auto number = [&](int64_t at) { return reader.Number(offset + at, 2); };
    size.width = std::max(size.width, number(1) + number(5));
    size.height = std::max(size.height, number(3) + number(7));
    return size;
  }
  Damaged("GIF");
}

ImageSize ParseBmp(HeadReader& reader) {
  const int64_t header = reader.Number(14, 4);
  if (header == 12) {
    if (reader.Byte(25) < 0) Cut("BMP");
    return {reader.Number(18, 2), reader.Number(20, 2)};
  }
  if (header < 0) Cut("BMP");
  const bool known = header == 40 || header == 52 || header == 56 || header == 64 ||
                     header == 108 || header == 124;
  if (!known) Damaged("BMP");
  const int64_t width = reader.Number(18, 4), height = reader.Number(22, 4);
  if (reader.Byte(53) < 0) Cut("BMP");
  // Negative: the first row is the topmost.
  return {width, height > INT32_MAX ? (int64_t{1} << 32) - height : height};
}

ImageSize ParseTiff(HeadReader& reader) {
  const TiffDirectory directory(reader);
  const auto width = directory.Find(256), height = directory.Find(257);
  if (!width || !height) throw ImageError("TIFF has no size in its header");
  const int64_t orientation = directory.Find(274).value_or(1);
  if (orientation >= 5 && orientation <= 8) return {*height, *width};
  return {*width, *height};
}

}  // namespace equipoise
