#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace equipoise {

// A picture that cannot be used. Never ends a run: the caller records `what()` in the quarantine.
class ImageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct ImageLimits {
  int64_t pixels = 179'000'000;
  int64_t bytes = int64_t{256} << 20;
};

struct ImageSize {
  int64_t width = 0, height = 0;
};

// Width and height from the head of a file (kind found by its first bytes, not by its name), without
// decoding and within the limits. EXIF orientation is not applied. Throws ImageError.
ImageSize ReadImageSize(const std::string& path, const ImageLimits& limits);
ImageSize ImageSizeOf(std::string_view bytes, const ImageLimits& limits);

// RGB as Pillow's Image.open(...).convert("RGB") gives it: [height, width, 3] uint8. JPEG (grey, CMYK,
// YCCK too) and PNG (palette, alpha dropped, 16 bit, 1 bit). Throws ImageError for truncated and damaged files.
at::Tensor DecodeImage(std::string_view bytes, const ImageLimits& limits);

// A file's bytes; ImageError when it is missing, not a regular file, or too large.
std::string ReadImageFile(const std::string& path, const ImageLimits& limits);

// `image` scaled to width x height as Pillow's Image.resize(BICUBIC) does: fixed-point, antialiased,
// horizontal pass first. [height, width, 3] uint8.
at::Tensor ResizeBicubic(const at::Tensor& image, int64_t width, int64_t height);

}  // namespace equipoise
