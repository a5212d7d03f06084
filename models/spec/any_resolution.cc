// Arithmetic is that of Transformers' select_best_resolution, get_patch_output_size and
// unpad_image, in the same order and in double precision, since the number of tokens hangs on how
// its results are cut off.

#include "models/spec/any_resolution.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "configs/base/error.h"

namespace equipoise {
namespace {

double Number(int64_t value) { return static_cast<double>(value); }

// Python's int(round(x, 7)) of a positive number.
int64_t CutOff(double x) {
  constexpr double kHalfOfLastDigit = 0.5e-7;
  const double above = std::ceil(x);
  return static_cast<int64_t>(above - x <= kHalfOfLastDigit ? above : std::floor(x));
}

// Patches of a tile's side.
int64_t TileSide(const ImageSpec& images) {
  const auto side =
      static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(images.tokens_per_tile))));
  EQUIPOISE_CHECK(side * side == images.tokens_per_tile, images.tokens_per_tile, " tokens a tile");
  return side;
}

bool IsBlank(const PatchGrid& pixels) { return pixels.rows <= 0; }

// Writes the rows of a blank picture, whose tiles begin at row `first` of the encoder.
void AddBlank(const ImageSpec& images, const PictureParts& parts, int64_t first, TokenRows* out) {
  const int64_t class_rows = images.rows_per_tile - images.tokens_per_tile;
  for (int64_t i = 0; i < parts.tokens; ++i) {
    const int64_t patch = std::min(i, parts.tiles * images.tokens_per_tile - 1);
    if (patch < i) out->newlines.push_back(std::ssize(out->rows));
    out->rows.push_back(first + patch / images.tokens_per_tile * images.rows_per_tile + class_rows +
                        patch % images.tokens_per_tile);
  }
}

void AddPicture(const ImageSpec& images, const PictureParts& parts, int64_t first, TokenRows* out) {
  const int64_t side = TileSide(images);
  const int64_t class_rows = images.rows_per_tile - images.tokens_per_tile;
  std::vector<int64_t>& rows = out->rows;
  for (int64_t i = 0; i < images.tokens_per_tile; ++i) rows.push_back(first + class_rows + i);
  for (int64_t y = parts.top; y < parts.top + parts.kept.rows; ++y) {
    for (int64_t x = parts.left; x < parts.left + parts.kept.columns; ++x) {
      const int64_t tile = 1 + y / side * parts.resolution.columns + x / side;
      rows.push_back(first + tile * images.rows_per_tile + class_rows + y % side * side + x % side);
    }
    out->newlines.push_back(std::ssize(rows));
    rows.push_back(rows.back());
  }
}

}  // namespace

PatchGrid BlankPicture(int64_t tiles, int64_t tokens) { return {-tiles, -tokens}; }

PatchGrid BestResolution(const ImageSpec& images, const PatchGrid& pixels) {
  EQUIPOISE_CHECK(!images.resolutions.empty() && pixels.rows > 0 && pixels.columns > 0);
  const double height = Number(pixels.rows), width = Number(pixels.columns);
  PatchGrid best;
  int64_t most = 0, least_waste = std::numeric_limits<int64_t>::max();
  for (const PatchGrid& tiles : images.resolutions) {
    const PatchGrid whole = {tiles.rows * images.tile_size, tiles.columns * images.tile_size};
    const double scale = std::min(Number(whole.columns) / width, Number(whole.rows) / height);
    const auto scaled = [scale](double side) { return static_cast<int64_t>(side * scale); };
    const int64_t effective = std::min(scaled(width) * scaled(height), pixels.patches());
    const int64_t waste = whole.patches() - effective;
    if (effective < most || (effective == most && waste >= least_waste)) continue;
    most = effective;
    least_waste = waste;
    best = tiles;
  }
  return best;
}

PatchGrid SizeWithin(const PatchGrid& whole, const PatchGrid& pixels) {
  const double by_width = Number(whole.columns) / Number(pixels.columns);
  const double by_height = Number(whole.rows) / Number(pixels.rows);
  const auto scaled = [](int64_t side, double scale) {
    return static_cast<int64_t>(std::ceil(Number(side) * scale));
  };
  if (by_width < by_height) {
    return {std::min(scaled(pixels.rows, by_width), whole.rows), whole.columns};
  }
  return {whole.rows, std::min(scaled(pixels.columns, by_height), whole.columns)};
}

PictureParts PartsOf(const ImageSpec& images, const PatchGrid& pixels) {
  PictureParts parts;
  if (IsBlank(pixels)) {
    parts.tiles = -pixels.rows;
    parts.tokens = -pixels.columns;
    return parts;
  }
  parts.resolution = BestResolution(images, pixels);
  parts.tiles = 1 + parts.resolution.patches();
  const int64_t side = TileSide(images);
  parts.kept = {parts.resolution.rows * side, parts.resolution.columns * side};
  const double height = Number(pixels.rows), width = Number(pixels.columns);
  const double rows = Number(parts.kept.rows), columns = Number(parts.kept.columns);
  if (width / height > columns / rows) {
    parts.top = (parts.kept.rows - CutOff(height * (columns / width))) / 2;
  } else {
    parts.left = (parts.kept.columns - CutOff(width * (rows / height))) / 2;
  }
  parts.kept.rows -= 2 * parts.top;
  parts.kept.columns -= 2 * parts.left;
  parts.tokens = images.tokens_per_tile + parts.kept.rows * (parts.kept.columns + 1);
  return parts;
}

TokenRows TokenRowsOf(const ImageSpec& images, const std::vector<PatchGrid>& pictures) {
  TokenRows out;
  int64_t first = 0;
  for (const PatchGrid& pixels : pictures) {
    const PictureParts parts = PartsOf(images, pixels);
    (IsBlank(pixels) ? AddBlank : AddPicture)(images, parts, first, &out);
    first += parts.tiles * images.rows_per_tile;
  }
  return out;
}

}  // namespace equipoise
