// libFuzzer target: any bytes are a picture or an ImageError.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/image_codec.h"
#include "data/image_size.h"

namespace {

void Use(std::string_view bytes) {
  const equipoise::ImageLimits limits{1 << 16, 1 << 20};
  const equipoise::ImageHeader header = equipoise::ParseImageHeader(bytes, limits);
  const auto [width, height] = header.size;
  std::vector<uint8_t> rgb(static_cast<size_t>(3 * width * height));
  const bool is_jpeg = header.kind == equipoise::ImageKind::kJpeg;
  (is_jpeg ? equipoise::DecodeJpeg : equipoise::DecodePng)(bytes, header.size, rgb.data());
  // Sizes that take both orders of the passes.
  const equipoise::ImageSize smaller{width / 2 + 1, std::min<int64_t>(height / 3 + 1, 50)};
  std::vector<uint8_t> resized(static_cast<size_t>(3 * smaller.width * smaller.height));
  equipoise::ResizeBicubicRgb(rgb.data(), header.size, resized.data(), smaller);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    Use({reinterpret_cast<const char*>(data), size});
  } catch (const equipoise::ImageError&) {
  }
  return 0;
}
