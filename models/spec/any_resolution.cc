// Arithmetic is that of Transformers' select_best_resolution, get_patch_output_size, unpad_image
// and, for LLaVA-OneVision, pack_image_features and apply_pooling, in the same order and in double
// precision, since the number of tokens hangs on how its results are cut off.

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

// Python's a // b of positive numbers: the quotient of what the division leaves, which does not
// round up to a whole number that b does not reach.
int64_t FloorDivision(double a, double b) {
  return static_cast<int64_t>(std::llround((a - std::fmod(a, b)) / b));
}

PatchGrid BroughtDown(const ImageSpec& images, const PatchGrid& kept) {
  constexpr double kClearlyMore = 1.1;
  if (images.max_tiles == 0) return kept;
  const double ratio =
      std::sqrt(Number(kept.patches()) / Number(images.max_tiles * images.tokens_per_tile));
  if (ratio <= kClearlyMore) return kept;
  return {FloorDivision(Number(kept.rows), ratio), FloorDivision(Number(kept.columns), ratio)};
}

// Patches of a tile's side.
int64_t TileSide(const ImageSpec& images) {
  const auto side =
      static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(images.tokens_per_tile))));
  EQUIPOISE_CHECK(side * side == images.tokens_per_tile, images.tokens_per_tile, " tokens a tile");
  return side;
}

bool IsBlank(const PatchGrid& pixels) { return pixels.rows < 0; }
// No picture is so flat.
bool IsVideo(const PatchGrid& pixels) { return pixels.rows == 0; }

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

// Two neighbours in a row of patches, and the weight of the second.
struct Neighbours {
  int64_t low = 0, high = 0;
  double share = 0;
};

// What number `i` of `to` is made of, of `from` in a row, as by torch's bilinear interpolation
// without align_corners.
Neighbours NeighboursOf(int64_t i, int64_t from, int64_t to) {
  const double at = std::max(0.0, (Number(i) + 0.5) * (Number(from) / Number(to)) - 0.5);
  const int64_t low = std::min(static_cast<int64_t>(at), from - 1);
  return {low, std::min(low + 1, from - 1), at - Number(low)};
}

// Adds the token at a row and column of what patches are brought down to; `row_of` gives the
// encoder's row of one of the patches.
template <typename RowOf>
void AddBlend(const PictureParts& parts, int64_t row, int64_t column, const RowOf& row_of,
              TokenRows* out) {
  const Neighbours y = NeighboursOf(row, parts.kept.rows, parts.shown.rows);
  const Neighbours x = NeighboursOf(column, parts.kept.columns, parts.shown.columns);
  out->blended.push_back(std::ssize(out->rows));
  out->rows.push_back(row_of(y.low, x.low));
  for (size_t i = 0; i < out->corners.size(); ++i) {
    const bool below = i / 2 == 1, right = i % 2 == 1;
    out->corners[i].push_back(row_of(below ? y.high : y.low, right ? x.high : x.low));
    out->weights[i].push_back(
        static_cast<float>((below ? y.share : 1 - y.share) * (right ? x.share : 1 - x.share)));
  }
}

// Adds the vector behind the tokens so far.
void AddNewline(TokenRows* out) {
  out->newlines.push_back(std::ssize(out->rows));
  out->rows.push_back(out->rows.back());
}

// Writes the rows of a video, whose frames begin at row `first` of the encoder.
void AddVideo(const ImageSpec& images, const PictureParts& parts, int64_t first, TokenRows* out) {
  const int64_t side = parts.kept.columns;
  first += images.rows_per_tile - images.tokens_per_tile;
  for (int64_t frame = 0; frame < parts.tiles; ++frame, first += images.rows_per_tile) {
    const auto row_of = [&](int64_t y, int64_t x) { return first + y * side + x; };
    for (int64_t i = 0; i < parts.shown.patches(); ++i) {
      AddBlend(parts, i / parts.shown.columns, i % parts.shown.columns, row_of, out);
    }
  }
  AddNewline(out);
}

// The rows of a picture's tokens.
class PictureRows {
 public:
  // `first` is the encoder's first row of the picture's tiles.
  PictureRows(const ImageSpec& images, const PictureParts& parts, int64_t first)
      : images_(images),
        parts_(parts),
        side_(TileSide(images)),
        first_(first + images.rows_per_tile - images.tokens_per_tile) {}

  void AddTo(TokenRows* out) const {
    std::vector<int64_t>& rows = out->rows;
    for (int64_t i = 0; i < images_.tokens_per_tile; ++i) rows.push_back(first_ + i);
    for (int64_t y = 0; y < parts_.shown.rows; ++y) {
      for (int64_t x = 0; x < parts_.shown.columns; ++x) {
        if (parts_.brought_down()) {
          AddBlend(
              parts_, y, x, [this](int64_t row, int64_t column) { return RowOf(row, column); },
              out);
        } else {
          rows.push_back(RowOf(y, x));
        }
      }
      AddNewline(out);
    }
  }

 private:
  // The row of one of the patches that are kept.
  int64_t RowOf(int64_t row, int64_t column) const {
    const int64_t y = parts_.top + row, x = parts_.left + column;
    const int64_t tile = 1 + y / side_ * parts_.resolution.columns + x / side_;
    return first_ + tile * images_.rows_per_tile + y % side_ * side_ + x % side_;
  }

  const ImageSpec& images_;
  const PictureParts& parts_;
  const int64_t side_, first_;
};

}  // namespace

PatchGrid BlankPicture(int64_t tiles, int64_t tokens) { return {-tiles, -tokens}; }

PatchGrid OnlySquare(const ImageSpec& images) {
  return BlankPicture(1, images.tokens_per_tile + 1);
}

PatchGrid VideoOfFrames(int64_t frames) {
  EQUIPOISE_CHECK(frames > 0, frames, " frames");
  return {0, frames};
}

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
  const int64_t side = TileSide(images);
  if (IsVideo(pixels)) {
    parts.tiles = pixels.columns;
    parts.kept = {side, side};
    parts.shown = {(side + 1) / 2, (side + 1) / 2};
    parts.tokens = parts.tiles * parts.shown.patches() + 1;
    return parts;
  }
  parts.resolution = BestResolution(images, pixels);
  parts.tiles = 1 + parts.resolution.patches();
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
  parts.shown = BroughtDown(images, parts.kept);
  parts.tokens = images.tokens_per_tile + parts.shown.rows * (parts.shown.columns + 1);
  return parts;
}

TokenRows TokenRowsOf(const ImageSpec& images, const std::vector<PatchGrid>& pictures) {
  TokenRows out;
  int64_t first = 0;
  for (const PatchGrid& pixels : pictures) {
    const PictureParts parts = PartsOf(images, pixels);
    if (IsBlank(pixels)) {
      AddBlank(images, parts, first, &out);
    } else if (IsVideo(pixels)) {
      AddVideo(images, parts, first, &out);
    } else {
      PictureRows(images, parts, first).AddTo(&out);
    }
    first += parts.tiles * images.rows_per_tile;
  }
  return out;
}

}  // namespace equipoise
