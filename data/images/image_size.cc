#include "data/images/image_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "configs/base/file_handle.h"
#include "configs/base/regular_file.h"
#include "data/images/image_heads.h"

namespace equipoise {
namespace {

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return lower;
}

// The kind of a file in the ISO base media format, by the brand in its first box.
const char* NameOfBrand(std::string_view brand) {
  for (const char* heic : {"heic", "heix", "hevc", "heim", "heis", "mif1", "msf1"}) {
    if (brand == heic) return "HEIC";
  }
  return brand == "avif" || brand == "avis" ? "AVIF" : "MP4";
}

const char* NameOfText(std::string_view head) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (head.starts_with(kByteOrderMark)) head.remove_prefix(kByteOrderMark.size());
  head.remove_prefix(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  const std::string lower = LowerCase(head);
  if (lower.starts_with("<!doctype html") || lower.starts_with("<html")) return "HTML";
  if (lower.starts_with("<svg")) return "SVG";
  if (lower.starts_with("<?xml")) return lower.find("<svg") != lower.npos ? "SVG" : "XML";
  return lower[0] == '{' || lower[0] == '[' ? "JSON" : nullptr;
}

// Name of a kind of file that is not read here; null when unknown.
const char* NameOfOtherKind(std::string_view head) {
  using Magic = std::pair<std::string_view, const char*>;
  static constexpr std::array<Magic, 10> kMagics = {{
      {"%PDF", "PDF"},
      {"8BPS", "Photoshop"},
      {"PK\x03\x04", "ZIP"},
      {"\x1f\x8b", "gzip"},
      {{"II+\0", 4}, "BigTIFF"},
      {{"MM\0+", 4}, "BigTIFF"},
      {{"\0\0\1\0", 4}, "Windows icon"},
      {"\xff\x0a", "JPEG XL"},
      {{"\0\0\0\x0cJXL ", 8}, "JPEG XL"},
      {{"\0\0\0\x0cjP  ", 8}, "JPEG 2000"},
  }};
  for (const auto& [magic, name] : kMagics) {
    if (head.starts_with(magic)) return name;
  }
  if (head.size() >= 12 && head.substr(4, 4) == "ftyp") return NameOfBrand(head.substr(8, 4));
  return NameOfText(head);
}

[[noreturn]] void RefuseKind(std::string_view head) {
  if (head.empty()) throw ImageError("is empty");
  const char* name = NameOfOtherKind(head);
  if (name == nullptr) throw ImageError("is not a picture of a known kind by its first bytes");
  throw ImageError(
      fmt::format("is a {} file; JPEG, PNG, WebP, GIF, BMP and TIFF are read, convert it", name));
}

// Parses the frame header at `offset` (its length field). Refuses forms that libjpeg does not
// decode.
ImageSize ParseJpegFrame(HeadReader& reader, int64_t offset, int marker) {
  const std::string_view frame = reader.Get(offset, 8);
  if (frame.size() < 8) throw ImageError("JPEG is cut in its header");
  if (marker == 0xc3) throw ImageError("is a lossless JPEG, which is not read; convert it");
  if (marker > 0xc2 && marker != 0xc9 && marker != 0xca) {
    throw ImageError(
        fmt::format("is a JPEG of a process that is not read (SOF{}); convert it", marker - 0xc0));
  }
  const int precision = static_cast<unsigned char>(frame[2]);
  const int components = static_cast<unsigned char>(frame[7]);
  if (precision != 8) {
    throw ImageError(fmt::format("is a JPEG of {} bits, only 8 are read; convert it", precision));
  }
  if (components != 1 && components != 3 && components != 4) {
    throw ImageError(fmt::format("is a JPEG of {} components, only 1, 3 and 4 are read; convert it",
                                 components));
  }
  return {reader.Short(offset + 5), reader.Short(offset + 3)};
}

// Walks the segments after SOI up to the frame header.
ImageSize ParseJpeg(HeadReader& reader) {
  constexpr int kMostSteps = 1 << 16;  // segments and fill bytes: no picture's header has as many
  int64_t offset = 2;
  for (int step = 0; step < kMostSteps; ++step) {
    if (reader.Byte(offset) < 0) throw ImageError("JPEG is cut in its header");
    if (reader.Byte(offset) != 0xff) throw ImageError("JPEG has a damaged header");
    const int marker = reader.Byte(offset + 1);
    if (marker == 0xff) {  // a fill byte
      ++offset;
      continue;
    }
    offset += 2;
    const bool is_frame =
        marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
    if (is_frame) return ParseJpegFrame(reader, offset, marker);
    if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd7)) continue;  // no length follows these
    if (marker == 0xd9 || marker == 0xda) throw ImageError("JPEG has no frame header");
    const int length = reader.Short(offset);
    if (marker < 0 || length < 0) throw ImageError("JPEG is cut in its header");
    if (marker < 0xc0 || length < 2) throw ImageError("JPEG has a damaged header");
    offset += length;
  }
  throw ImageError("JPEG has a damaged header");
}

uint32_t BigEndian(std::string_view bytes) {
  uint32_t value = 0;
  for (const char byte : bytes.substr(0, 4)) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

// PNG's checksum; a header of 17 bytes needs no table.
uint32_t Crc32(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320 : 0);
  }
  return ~crc;
}

ImageSize ParsePng(HeadReader& reader) {
  const std::string_view chunk = reader.Get(8, 25);  // length, "IHDR", 13 bytes, checksum
  if (chunk.size() < 25) throw ImageError("PNG is cut in its header");
  const bool sound = BigEndian(chunk) == 13 && chunk.substr(4, 4) == "IHDR" &&
                     BigEndian(chunk.substr(21)) == Crc32(chunk.substr(4, 17));
  if (!sound) throw ImageError("PNG has a damaged header");
  return {BigEndian(chunk.substr(8)), BigEndian(chunk.substr(12))};
}

// The kinds that are read, by their first bytes, which the parser behind them relies on.
ImageHeader ParseKind(HeadReader& reader) {
  struct Kind {
    std::string_view magic;
    ImageKind kind;
    ImageSize (*parse)(HeadReader& reader);
  };
  static constexpr std::array<Kind, 7> kKinds = {{
      {"\xff\xd8", ImageKind::kJpeg, ParseJpeg},
      {"\x89PNG\r\n\x1a\n", ImageKind::kPng, ParsePng},
      {"GIF87a", ImageKind::kGif, ParseGif},
      {"GIF89a", ImageKind::kGif, ParseGif},
      {"BM", ImageKind::kBmp, ParseBmp},
      {{"II*\0", 4}, ImageKind::kTiff, ParseTiff},
      {{"MM\0*", 4}, ImageKind::kTiff, ParseTiff},
  }};
  const std::string_view head = reader.Get(0, 1024);
  for (const Kind& kind : kKinds) {
    if (head.starts_with(kind.magic)) return {kind.kind, kind.parse(reader)};
  }
  if (head.starts_with("RIFF") && head.size() >= 12 && head.substr(8, 4) == "WEBP")
    return {ImageKind::kWebp, ParseWebp(reader)};
  RefuseKind(head);
}

ImageHeader Parse(HeadReader& reader, const ImageLimits& limits) {
  const ImageHeader header = ParseKind(reader);
  const auto [width, height] = header.size;
  const std::string size = fmt::format("{} x {}", width, height);
  if (width <= 0 || height <= 0 || width > INT32_MAX || height > INT32_MAX) {
    throw ImageError("has an impossible size, " + size);
  }
  if (height > limits.pixels / width) {
    throw ImageError(
        fmt::format("has {} pixels, more than the limit of {} (data.limits.image_pixels)", size,
                    limits.pixels));
  }
  return header;
}

void CheckBytes(int64_t bytes, const ImageLimits& limits) {
  if (bytes <= limits.bytes) return;
  throw ImageError(fmt::format("has {} bytes, more than the limit of {} (data.limits.image_bytes)",
                               bytes, limits.bytes));
}

// An open regular file of a size within the limits. Links are followed: folders of links are a
// common way to lay out data.
OpenedFile OpenInput(const std::string& path, const ImageLimits& limits) {
  if (path.find('\0') != path.npos) throw ImageError("the path holds a zero byte");
  OpenedFile opened = OpenRegularFile(path);
  if (!opened.problem.empty()) throw ImageError(opened.problem);
  CheckBytes(opened.bytes, limits);
  return opened;
}

std::string ReadWhole(const OpenedFile& opened) {
  std::string bytes(static_cast<size_t>(opened.bytes), '\0');
  const ssize_t got = ReadFully(opened.file, bytes.data(), bytes.size());
  if (got < 0) throw ImageError(std::string("cannot be read: ") + std::strerror(errno));
  if (got < std::ssize(bytes)) throw ImageError("became shorter while it was read");
  return bytes;
}

// The path with its control characters replaced, for a message of one line.
std::string Printable(std::string path) {
  for (char& c : path) c = (c >= 0 && c < ' ') || c == '\x7f' ? '?' : c;
  return path;
}

// Runs `action`, with the path put in front of what it throws.
template <class Action>
auto NamingPath(const std::string& path, Action action) {
  try {
    return action();
  } catch (const ImageError& error) {
    throw ImageError(Printable(path) + ": " + error.what());
  }
}

}  // namespace

ImageHeader ParseImageHeader(std::string_view bytes, const ImageLimits& limits) {
  CheckBytes(static_cast<int64_t>(bytes.size()), limits);
  HeadReader reader(bytes);
  return Parse(reader, limits);
}

ImageSize ImageSizeOf(std::string_view bytes, const ImageLimits& limits) {
  return ParseImageHeader(bytes, limits).size;
}

ImageSize ReadImageSize(const std::string& path, const ImageLimits& limits) {
  return NamingPath(path, [&] {
    const OpenedFile opened = OpenInput(path, limits);
    HeadReader reader(opened.file, opened.bytes);
    return Parse(reader, limits).size;
  });
}

ImageSize ReadImageSize(const FileHandle& file, int64_t bytes, const ImageLimits& limits) {
  CheckBytes(bytes, limits);
  HeadReader reader(file, bytes);
  return Parse(reader, limits).size;
}

std::string ReadImageFile(const std::string& path, const ImageLimits& limits) {
  return NamingPath(path, [&] { return ReadWhole(OpenInput(path, limits)); });
}

}  // namespace equipoise
