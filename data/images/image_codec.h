#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>

#include "data/images/image_size.h"

namespace equipoise {

// The codecs and the resize of image.h, LibTorch-free: pixels are plain memory of the caller, rows
// of 3 * width bytes from top to bottom without gaps.

// Decode into `rgb`, which holds 3 * width * height bytes of the size that ParseImageHeader found.
// Everything that would leave pixels unset or guessed is an ImageError: a truncated or damaged file
// never gives a picture that is half grey. On failure the content of `rgb` is unspecified.
void DecodeJpeg(std::string_view bytes, ImageSize size, uint8_t* rgb);
void DecodePng(std::string_view bytes, ImageSize size, uint8_t* rgb);
// The first frame of an animation, on black.
void DecodeWebp(std::string_view bytes, ImageSize size, uint8_t* rgb);
// The first frame, on the transparent colour or, without one, the palette's first.
void DecodeGif(std::string_view bytes, ImageSize size, uint8_t* rgb);
void DecodeBmp(std::string_view bytes, ImageSize size, uint8_t* rgb);
// The first picture of the file.
void DecodeTiff(std::string_view bytes, ImageSize size, uint8_t* rgb);

// Decodes a picture by the codec of its header's kind.
void DecodeRgb(std::string_view bytes, const ImageHeader& header, uint8_t* rgb);

// Resamples `from` into `to`; see ResizeBicubic in image.h. Both sizes are at least 1 x 1.
void ResizeBicubicRgb(const uint8_t* from, ImageSize from_size, uint8_t* to, ImageSize to_size);

enum class ResizeFilter : uint8_t { kBicubic, kBilinear };

// A part of a picture: its first column and row, and its size, at least 1 x 1.
struct ImageWindow {
  int64_t left, top;
  ImageSize size;
};

// Takes row `y` of a window as three planes of its width, red first, valid during the call.
using GivePlanes = std::function<void(int64_t y, const uint8_t* planes)>;

// Resamples `from` to `to_size` likewise, by a filter, and gives only a window of the result, row
// by row from its top on.
void ResizePlanes(const uint8_t* from, ImageSize from_size, ImageSize to_size, ResizeFilter filter,
                  const ImageWindow& window, const GivePlanes& give);

// A picture in the middle of one of a colour, at least as wide and high; the odd row or column is
// after it.
struct PaddedPicture {
  const uint8_t* rgb;
  ImageSize size, padded;
  std::array<uint8_t, 3> colour;
};

// The same of a padded picture, which is not copied.
void ResizePaddedPlanes(const PaddedPicture& picture, ImageSize to_size, ResizeFilter filter,
                        const ImageWindow& window, const GivePlanes& give);

}  // namespace equipoise
