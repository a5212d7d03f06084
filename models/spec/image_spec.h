#pragma once

#include <array>
#include <cstdint>

#include "models/spec/layer_load.h"

namespace equipoise {

// The image input of a model. data/images makes an image processor from it.
struct ImageSpec {
  enum class Kind : uint8_t {
    kNone,    // no pictures
    kTiles,   // squares of one size, cut from the resized picture, and a thumbnail
    kSquare,  // the whole picture as one tile
  };
  // How the whole picture becomes a square.
  enum class Fit : uint8_t {
    kStretch,  // resized, its ratio changed
    kPad,      // padded with the mean colour, then resized
    kCrop,     // resized by its shorter side, then cropped at its centre
  };
  Kind kind = Kind::kNone;
  Fit fit = Fit::kStretch;  // of kSquare
  int64_t tile_size = 0;    // pixels of a side
  // Rows of a tile in the encoder, where they are one segment of attention, and in the language
  // model. Without an encoder a tile counts as one row and no tokens.
  int64_t rows_per_tile = 1, tokens_per_tile = 0;
  // Normalization of red, green and blue: x of 0 to 1 becomes (x - mean) / deviation.
  std::array<float, 3> mean = {0, 0, 0}, deviation = {1, 1, 1};

  bool takes_pictures() const { return kind != Kind::kNone; }
  PictureLoad LoadOfTiles(int64_t tiles) const {
    const auto rows = static_cast<double>(rows_per_tile);
    return {tiles * rows_per_tile, static_cast<double>(tiles) * rows * rows,
            tiles * tokens_per_tile};
  }
  // Number of tiles that have `patches` rows in the encoder.
  int64_t TilesOf(int64_t patches) const { return patches / rows_per_tile; }
};

}  // namespace equipoise
