#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "data/data_config.h"
#include "data/image.h"

namespace equipoise {

struct TileGrid {
  int64_t columns = 1, rows = 1;
};

// InternVL's dynamic tiling (research: OpenGVLab's dynamic_preprocess): the grid whose ratio is nearest to
// the picture's, larger grids only for pictures of more than half their area. Pure.
TileGrid ChooseGrid(ImageSize size, int64_t min_tiles, int64_t max_tiles, int64_t tile_size);

// Tiles of a picture, thumbnail included. With several pictures in a record each may have at most
// max(1, max / pictures).
int64_t CountTiles(ImageSize size, const TilesConfig& config, int64_t pictures, int64_t tile_size);

// [tiles, 3, tile_size, tile_size] fp32: resized, cut row by row, thumbnail last, normalised with
// ImageNet's mean and deviation. `image` is [height, width, 3] uint8.
at::Tensor MakeTiles(const at::Tensor& image, const TilesConfig& config, int64_t pictures, int64_t tile_size);

}  // namespace equipoise
