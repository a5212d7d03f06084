#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "configs/base/file_handle.h"

namespace equipoise {

// A picture that cannot be used. Never ends a run: the caller records `what()` in the quarantine.
class ImageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Limits on a file from the outside, checked before anything is allocated.
struct ImageLimits {
  int64_t pixels = 179'000'000;
  int64_t bytes = int64_t{256} << 20;
};

// Width and height in pixels.
struct ImageSize {
  int64_t width = 0, height = 0;
  bool operator==(const ImageSize&) const = default;
};

enum class ImageKind { kJpeg, kPng, kWebp, kGif, kBmp, kTiff };

struct ImageHeader {
  ImageKind kind;
  ImageSize size;
};

// Kind and size from the first bytes, never from the name, without decoding. Refuses what the
// header alone shows: other kinds of files (named in the message), forms that no decoder here
// reads, a side of zero, more pixels or bytes than the limits. The orientation of a TIFF is
// applied, as Pillow does, EXIF's of other kinds is not. Throws ImageError.
ImageHeader ParseImageHeader(std::string_view bytes, const ImageLimits& limits);

// The size of a picture in a file, of which only the blocks that hold the headers are read. `path`
// may be anything: folders, devices and pipes are refused and never waited for. Symbolic links are
// followed; a caller that must stay below a root resolves the path first. Messages begin with it.
ImageSize ReadImageSize(const std::string& path, const ImageLimits& limits);
// The same of an open file of `bytes` bytes.
ImageSize ReadImageSize(const FileHandle& file, int64_t bytes, const ImageLimits& limits);
// The size of a picture by its bytes; see ParseImageHeader().
ImageSize ImageSizeOf(std::string_view bytes, const ImageLimits& limits);

// The bytes of a file; `path` and messages as in ReadImageSize(). Throws ImageError when it is
// missing, not a regular file, or too large.
std::string ReadImageFile(const std::string& path, const ImageLimits& limits);

}  // namespace equipoise
