#pragma once

#include <array>
#include <cstdint>

namespace equipoise {

// What the codecs share: samples of a file as RGB, with Pillow's rounding.

// RGB of each index; those that a file's palette does not reach are black, as in Pillow.
using Palette = std::array<std::array<uint8_t, 3>, 256>;

// The palette of a grey picture of `depth` bits (1, 2, 4; 8 and above: the value itself), spread
// over 0 to 255; `inverted`: 0 is white.
Palette GreyPalette(int depth, bool inverted = false);

// `width` samples of 1, 2, 4 or 8 bits, the first in the highest bits, to a byte each.
void UnpackSamples(const uint8_t* packed, int depth, int64_t width, uint8_t* samples);

// `width` pixels of four bytes, cyan, magenta, yellow, black, or their complements, to RGB.
void ConvertCmyk(const uint8_t* cmyk, int64_t width, bool complements, uint8_t* rgb);

}  // namespace equipoise
