#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "data/images/image_size.h"

namespace equipoise {

// RGB as Pillow's Image.open(...).convert("RGB") gives it: [height, width, 3] uint8. JPEG (grey,
// CMYK, YCCK, progressive), PNG of every depth, interlaced too, WebP, GIF and the first frame of
// animations, BMP, TIFF; palettes are applied, alpha and tRNS are dropped, 16 bits become the high
// byte, except in grey pictures, which Pillow clips at 255. EXIF orientation (other than a TIFF's)
// and colour profiles are ignored. Throws ImageError for truncated and damaged files.
at::Tensor DecodeImage(std::string_view bytes, const ImageLimits& limits);

// `image` ([height, width, 3] uint8) scaled to width x height as Image.resize(BICUBIC) of Pillow 13
// does, bit for bit: fixed-point, antialiased, with that version's order of passes. Returns
// [height, width, 3] uint8.
at::Tensor ResizeBicubic(const at::Tensor& image, int64_t width, int64_t height);

}  // namespace equipoise
