#pragma once

#include <cstdint>

#include "data/images/image_size.h"
#include "data/settings/data_config.h"
#include "models/spec/image_spec.h"

namespace at {
class Tensor;
}

namespace equipoise {

// Processor of pictures for a model's encoder: their load, from their size alone, and the encoder's
// input. The pictures of a record share its tiles: each may have max(1, max / pictures).
// Thread-safe.
class ImageProcessor {
 public:
  ImageProcessor(const ImageSpec& spec, const TilesConfig& tiles) : spec_(spec), tiles_(tiles) {}

  const ImageSpec& spec() const { return spec_; }
  // The fewest tokens that a picture can have.
  int64_t least_tokens() const { return spec_.tokens_per_tile; }
  // The load of one of a record's `pictures`. REQUIRES: spec().takes_pictures().
  PictureLoad Measure(ImageSize size, int64_t pictures) const;
  // Pixels of such a picture, [tiles, 3, tile_size, tile_size] fp32, of `image`, [height, width,
  // 3] uint8: for tiles resized to the grid, cut row by row, the thumbnail (a second resize of the
  // original) last; for a square as spec().fit says. Then (x / 255 - mean) / deviation, in fp32 and
  // in this order, as torchvision's ToTensor and Normalize do. In a target of its own,
  // image_pixels, as it needs LibTorch.
  at::Tensor Make(const at::Tensor& image, int64_t pictures) const;

 private:
  at::Tensor MakeTiles(const at::Tensor& image, int64_t pictures) const;
  at::Tensor MakeSquare(const at::Tensor& image) const;

  ImageSpec spec_;
  TilesConfig tiles_;
};

}  // namespace equipoise
