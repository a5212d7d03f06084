#include "data/images/image_colours.h"

#include <algorithm>

namespace equipoise {
namespace {

// a * b / 255, rounded.
int MultiplyBytes(int a, int b) {
  const int product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

}  // namespace

Palette GreyPalette(int depth, bool inverted) {
  Palette palette{};
  const int most = (1 << std::min(depth, 8)) - 1;
  for (int i = 0; i <= most; ++i) {
    const int grey = i * 255 / most;
    palette[static_cast<size_t>(i)].fill(static_cast<uint8_t>(inverted ? 255 - grey : grey));
  }
  return palette;
}

void UnpackSamples(const uint8_t* packed, int depth, int64_t width, uint8_t* samples) {
  const int mask = (1 << depth) - 1;
  for (int64_t x = 0; x < width; ++x) {
    const int64_t bit = x * depth;
    samples[x] = static_cast<uint8_t>(packed[bit / 8] >> (8 - depth - bit % 8) & mask);
  }
}

void ConvertCmyk(const uint8_t* cmyk, int64_t width, bool complements, uint8_t* rgb) {
  const int turn = complements ? 255 : 0;
  for (int64_t x = 0; x < width; ++x, cmyk += 4, rgb += 3) {
    const int light = 255 - (cmyk[3] ^ turn);
    for (int channel = 0; channel < 3; ++channel) {
      const int value = light - MultiplyBytes(cmyk[channel] ^ turn, light);
      rgb[channel] = static_cast<uint8_t>(std::max(value, 0));
    }
  }
}

}  // namespace equipoise
