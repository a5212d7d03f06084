#pragma once

#include <cstdint>

#include "data/images/image_size.h"
#include "data/settings/data_config.h"

namespace equipoise {

// Columns and rows of the tiles that a picture is cut into.
struct TileGrid {
  int64_t columns = 1, rows = 1;
};

// The grid of InternVL's dynamic tiling: among the grids of min_tiles to max_tiles tiles the one
// whose aspect ratio is nearest to the picture's; of equally near ones a larger grid only for a
// picture of more than half the grid's area. 1 x 1 when no grid is allowed (min_tiles > max_tiles).
// Pure.
TileGrid ChooseGrid(ImageSize size, int64_t min_tiles, int64_t max_tiles, int64_t tile_size);

// The grid of one of a record's `pictures`, each of which may have at most max(1, max / pictures)
// tiles.
TileGrid ChooseGrid(ImageSize size, const TilesConfig& config, int64_t pictures, int64_t tile_size);

// Tiles of one of a record's `pictures`, thumbnail included.
int64_t CountTiles(ImageSize size, const TilesConfig& config, int64_t pictures, int64_t tile_size);

}  // namespace equipoise
