#include <ATen/ops/empty.h>

#include "configs/base/error.h"
#include "data/images/image.h"
#include "data/images/image_codec.h"

namespace equipoise {

at::Tensor DecodeImage(std::string_view bytes, const ImageLimits& limits) {
  const ImageHeader header = ParseImageHeader(bytes, limits);
  at::Tensor image = at::empty({header.size.height, header.size.width, 3}, at::kByte);
  DecodeRgb(bytes, header, image.mutable_data_ptr<uint8_t>());
  return image;
}

at::Tensor ResizeBicubic(const at::Tensor& image, int64_t width, int64_t height) {
  EQUIPOISE_CHECK(image.dim() == 3 && image.size(2) == 3 && image.scalar_type() == at::kByte &&
                  image.is_contiguous() && image.numel() > 0 && width > 0 && height > 0);
  at::Tensor resized = at::empty({height, width, 3}, at::kByte);
  ResizeBicubicRgb(image.const_data_ptr<uint8_t>(), {image.size(1), image.size(0)},
                   resized.mutable_data_ptr<uint8_t>(), {width, height});
  return resized;
}

}  // namespace equipoise
