#include "data/images/image_processor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "configs/base/error.h"
#include "data/images/image_grid.h"
#include "models/spec/any_resolution.h"

namespace equipoise {

PictureLoad ImageProcessor::Measure(ImageSize size, int64_t pictures) const {
  EQUIPOISE_CHECK(spec_.takes_pictures(), "the model takes no pictures");
  if (spec_.lists_grids()) return spec_.LoadOfGrid(GridOf(size, pictures));
  if (spec_.kind == ImageSpec::Kind::kSquare) return spec_.LoadOfTiles(1);
  return spec_.LoadOfTiles(CountTiles(size, tiles_, pictures, spec_.tile_size));
}

PatchGrid ImageProcessor::GridOf(ImageSize size, int64_t pictures) const {
  if (spec_.lone_tiles && pictures > 1) return OnlySquare(spec_);
  if (!spec_.has_grids()) return {size.height, size.width};
  constexpr double kLongest = 200;
  const auto height = static_cast<double>(size.height), width = static_cast<double>(size.width);
  if (std::max(height, width) / std::min(height, width) > kLongest) {
    throw ImageError(fmt::format("{} x {} pixels: one side is more than {} times the other",
                                 size.width, size.height, kLongest));
  }
  const auto factor = static_cast<double>(spec_.patch_size * spec_.merge);
  const auto least = static_cast<double>(spec_.min_pixels);
  const auto most = static_cast<double>(spec_.max_pixels);
  // Python's round(): halves go to the even number.
  double rows = std::nearbyint(height / factor), columns = std::nearbyint(width / factor);
  const double pixels = rows * columns * factor * factor;
  if (pixels > most) {
    const double beta = std::sqrt(height * width / most);
    rows = std::max(1.0, std::floor(height / beta / factor));
    columns = std::max(1.0, std::floor(width / beta / factor));
  } else if (pixels < least) {
    const double beta = std::sqrt(least / (height * width));
    rows = std::ceil(height * beta / factor);
    columns = std::ceil(width * beta / factor);
  }
  return {static_cast<int64_t>(rows) * spec_.merge, static_cast<int64_t>(columns) * spec_.merge};
}

}  // namespace equipoise
