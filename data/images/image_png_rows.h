#pragma once

#include <png.h>

#include <cstdint>
#include <cstring>

#include "data/images/image_colours.h"

namespace equipoise {

// Conversion of one row of a PNG's samples, a byte each, or two in grey of 16 bits, to RGB. Samples
// of palettes and of grey are looked up in `palette`; alpha is dropped.
struct PngRowConverter {
  int colour_type, depth;  // of the header, whose samples of 16 bits are cut to 8 but for grey
  int64_t width;
  Palette palette;

  void operator()(const uint8_t* from, uint8_t* rgb) const {
    if (colour_type == PNG_COLOR_TYPE_GRAY && depth == 16) return ConvertGrey16(from, rgb);
    if (colour_type == PNG_COLOR_TYPE_RGB) {
      std::memcpy(rgb, from, static_cast<size_t>(3 * width));
    } else if (colour_type == PNG_COLOR_TYPE_RGB_ALPHA) {
      DropAlpha(from, rgb);
    } else {
      const int step = colour_type == PNG_COLOR_TYPE_GRAY_ALPHA ? 2 : 1;
      for (int64_t x = 0; x < width; ++x, from += step, rgb += 3)
        std::memcpy(rgb, palette[*from].data(), 3);
    }
  }

 private:
  // Copies four bytes of each pixel but the last, which is quicker: the next pixel takes the
  // fourth.
  void DropAlpha(const uint8_t* from, uint8_t* rgb) const {
    for (int64_t x = 0; x + 1 < width; ++x, from += 4, rgb += 3) std::memcpy(rgb, from, 4);
    std::memcpy(rgb, from, 3);
  }
  // Pillow clips these, while all other pictures of 16 bits give their high byte.
  void ConvertGrey16(const uint8_t* from, uint8_t* rgb) const {
    for (int64_t x = 0; x < width; ++x)
      std::memset(rgb + 3 * x, from[2 * x] != 0 ? 255 : from[2 * x + 1], 3);
  }
};

}  // namespace equipoise
