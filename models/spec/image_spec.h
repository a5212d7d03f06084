#pragma once

#include <array>
#include <cstdint>

#include "models/spec/layer_load.h"

namespace equipoise {

// How a model takes pictures: a value, from which data/images makes what prepares them.
struct ImageSpec {
  enum class Kind : uint8_t {
    kNone,   // not at all
    kTiles,  // squares of one size, cut from the resized picture, and a thumbnail
  };
  Kind kind = Kind::kNone;
  int64_t tile_size = 0;  // pixels of a side
  // A tile's rows: rows that the encoder computes on, a segment of its attention, and what the
  // language model gets of them. Without an encoder a tile counts as one row that leads nowhere.
  int64_t rows_per_tile = 1, tokens_per_tile = 0;
  // Normalization of red, green and blue: x of 0 to 1 becomes (x - mean) / deviation.
  std::array<float, 3> mean = {0, 0, 0}, deviation = {1, 1, 1};

  bool takes_pictures() const { return kind != Kind::kNone; }
  PictureLoad LoadOfTiles(int64_t tiles) const {
    const auto rows = static_cast<double>(rows_per_tile);
    return {tiles * rows_per_tile, static_cast<double>(tiles) * rows * rows,
            tiles * tokens_per_tile};
  }
  // The tiles that have so many rows.
  int64_t TilesOf(int64_t patches) const { return patches / rows_per_tile; }
};

}  // namespace equipoise
