#include "trainer/outputs/report_picture.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <exception>

#include "configs/base/base64.h"
#include "data/images/image.h"

namespace equipoise {
namespace {

constexpr size_t kFewBytes = 48 << 10;  // files up to this size are embedded unchanged
constexpr int64_t kLongestSide = 256;

std::string_view MimeType(std::string_view bytes) {
  if (bytes.substr(0, 8) == "\x89PNG\r\n\x1a\n") return "image/png";
  if (bytes.substr(0, 3) == "\xff\xd8\xff") return "image/jpeg";
  if (bytes.substr(0, 4) == "GIF8") return "image/gif";
  if (bytes.substr(0, 4) == "RIFF" && bytes.substr(8, 4) == "WEBP") return "image/webp";
  return "";
}

// A PNG of `image`, [height, width, 3] uint8, contiguous. Empty when it cannot be encoded.
std::string EncodePng(const at::Tensor& image) {
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.size(1));
  header.height = static_cast<png_uint_32>(image.size(0));
  header.format = PNG_FORMAT_RGB;
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(header), '\0');
  png_alloc_size_t size = bytes.size();
  const uint8_t* pixels = image.const_data_ptr<uint8_t>();
  if (png_image_write_to_memory(&header, bytes.data(), &size, 0, pixels, 0, nullptr) == 0)
    return "";
  bytes.resize(size);
  return bytes;
}

std::string ScaledDownPng(std::string_view bytes) {
  const at::Tensor image = DecodeImage(bytes, ImageLimits());
  const int64_t height = image.size(0), width = image.size(1), longest = std::max(height, width);
  if (longest <= kLongestSide) return EncodePng(image.contiguous());
  const auto scaled = [&](int64_t side) {
    return std::max<int64_t>(1, side * kLongestSide / longest);
  };
  return EncodePng(ResizeBicubic(image, scaled(width), scaled(height)).contiguous());
}

std::string DataUri(std::string_view bytes) {
  const std::string_view type = MimeType(bytes);
  if (type.empty()) return "";
  return fmt::format("data:{};base64,{}", type, Base64(bytes));
}

}  // namespace

std::string PictureDataUri(const at::Tensor& image) { return DataUri(EncodePng(image)); }

std::string PictureDataUri(std::string_view bytes) {
  if (bytes.size() <= kFewBytes && !MimeType(bytes).empty()) return DataUri(bytes);
  try {
    return DataUri(ScaledDownPng(bytes));
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace equipoise
