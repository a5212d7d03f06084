#include "data/images/image_grid.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "configs/base/error.h"

namespace equipoise {

// Grids are tried by number of tiles, then by columns. The order of two grids with as many tiles
// cannot matter while min_tiles is 1: a smaller grid lies strictly between their ratios.
TileGrid ChooseGrid(ImageSize size, int64_t min_tiles, int64_t max_tiles, int64_t tile_size) {
  EQUIPOISE_CHECK(size.width > 0 && size.height > 0 && tile_size > 0);
  const double ratio = static_cast<double>(size.width) / static_cast<double>(size.height);
  const double area = static_cast<double>(size.width) * static_cast<double>(size.height);
  const double half_tile = 0.5 * static_cast<double>(tile_size) * static_cast<double>(tile_size);
  TileGrid best;
  double nearest = std::numeric_limits<double>::infinity();
  for (int64_t tiles = std::max<int64_t>(min_tiles, 1); tiles <= max_tiles; ++tiles) {
    for (int64_t columns = 1; columns <= tiles; ++columns) {
      if (tiles % columns != 0) continue;
      const TileGrid grid{columns, tiles / columns};
      const double distance =
          std::abs(ratio - static_cast<double>(grid.columns) / static_cast<double>(grid.rows));
      const bool tie_won = distance == nearest && area > half_tile * static_cast<double>(tiles);
      if (distance < nearest || tie_won) best = grid;
      nearest = std::min(nearest, distance);
    }
  }
  return best;
}

TileGrid ChooseGrid(ImageSize size, const TilesConfig& config, int64_t pictures,
                    int64_t tile_size) {
  EQUIPOISE_CHECK(pictures > 0);
  return ChooseGrid(size, config.min, std::max<int64_t>(1, config.max / pictures), tile_size);
}

int64_t CountTiles(ImageSize size, const TilesConfig& config, int64_t pictures, int64_t tile_size) {
  const TileGrid grid = ChooseGrid(size, config, pictures, tile_size);
  const int64_t tiles = grid.columns * grid.rows;
  return tiles + (config.thumbnail && tiles > 1 ? 1 : 0);
}

}  // namespace equipoise
