#include "models/spec/image_spec.h"

#include <cmath>

#include "models/spec/any_resolution.h"

namespace equipoise {
namespace {

// The sum of n * n over the parts of `size` that are cut at multiples of `part`, of which the last
// may be smaller.
double SquaresOfParts(int64_t size, int64_t part) {
  const auto whole = static_cast<double>(size / part), side = static_cast<double>(part);
  const auto rest = static_cast<double>(size % part);
  return whole * side * side + rest * rest;
}

}  // namespace

PictureLoad ImageSpec::LoadOfGrid(const PatchGrid& grid) const {
  if (kind == Kind::kAnyRes) {
    const PictureParts parts = PartsOf(*this, grid);
    PictureLoad load = LoadOfTiles(parts.tiles);
    load.image_tokens = parts.tokens;
    return load;
  }
  // Attention stays within each time of a video.
  const auto times = static_cast<double>(grid.times);
  const auto patches = static_cast<double>(grid.rows * grid.columns);
  PictureLoad load{grid.patches(), times * patches * patches, grid.patches() / rows_per_tile};
  // A window of r rows and c columns has (r * c)^2 pairs, so the sum is a product.
  if (window > 0) {
    load.window_pairs =
        times * SquaresOfParts(grid.rows, window) * SquaresOfParts(grid.columns, window);
  }
  return load;
}

std::vector<PatchGrid> ImageSpec::GridsOfTiles(int64_t tiles) const {
  if (kind == Kind::kAnyRes) {
    if (tiles == 0) return {};
    return {BlankPicture(tiles, tiles * tokens_per_tile)};
  }
  const int64_t side = patch_size * merge, most = std::max<int64_t>(1, max_pixels / side / side);
  std::vector<PatchGrid> grids;
  while (tiles > 0) {
    const int64_t now = std::min(tiles, most);
    auto rows = static_cast<int64_t>(std::sqrt(static_cast<double>(now)));
    while (now % rows != 0) --rows;
    grids.push_back({rows * merge, now / rows * merge});
    tiles -= now;
  }
  return grids;
}

PictureLoad ImageSpec::LoadOfTiles(int64_t tiles) const {
  if (has_grids()) {
    PictureLoad load;
    for (const PatchGrid& grid : GridsOfTiles(tiles)) load += LoadOfGrid(grid);
    return load;
  }
  const auto rows = static_cast<double>(rows_per_tile);
  return {tiles * rows_per_tile, static_cast<double>(tiles) * rows * rows, tiles * tokens_per_tile};
}

}  // namespace equipoise
