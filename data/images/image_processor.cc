#include "data/images/image_processor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "configs/base/error.h"
#include "data/images/image_grid.h"
#include "models/spec/any_resolution.h"

namespace equipoise {
namespace {

// What is resized: frames of so many pixels, 1 and 1 of a picture. `rounded_frames`: as they count
// once sides are rounded.
struct Resizing {
  double height, width, frames, rounded_frames;
};

// Rows and columns of squares of `factor` pixels, as near to the size as limits on the pixels of
// all frames allow: smart_resize of Transformers.
PatchGrid Squares(const Resizing& from, double factor, double least, double most) {
  constexpr double kLongest = 200;
  const auto& [height, width, frames, rounded_frames] = from;
  if (std::max(height, width) / std::min(height, width) > kLongest) {
    throw ImageError(fmt::format("{} x {} pixels: one side is more than {} times the other", width,
                                 height, kLongest));
  }
  // Python's round(): halves go to the even number.
  double rows = std::nearbyint(height / factor), columns = std::nearbyint(width / factor);
  const double pixels = rounded_frames * rows * columns * factor * factor;
  if (pixels > most) {
    const double beta = std::sqrt(frames * height * width / most);
    rows = std::max(1.0, std::floor(height / beta / factor));
    columns = std::max(1.0, std::floor(width / beta / factor));
  } else if (pixels < least) {
    const double beta = std::sqrt(least / (frames * height * width));
    rows = std::ceil(height * beta / factor);
    columns = std::ceil(width * beta / factor);
  }
  return {static_cast<int64_t>(rows), static_cast<int64_t>(columns)};
}

// Refuses a picture whose square would take hours to resize where it is padded:
// data.limits.image_pixels bounds the picture's own pixels alone.
void RequireSquare(ImageSize size, ImageSpec::Fit fit) {
  constexpr int64_t kLongest = 65'535;  // as long as a JPEG or GIF can be
  if (fit != ImageSpec::Fit::kPad || size.width == size.height) return;
  if (std::max(size.width, size.height) <= kLongest) return;
  throw ImageError(fmt::format("{} x {} pixels: a side is above {}, too long to be made a square",
                               size.width, size.height, kLongest));
}

}  // namespace

int64_t ImageProcessor::LeastTokens(const Video& video) const {
  const auto frames = static_cast<int64_t>(video.frames);
  if (!spec_.has_grids()) return spec_.LoadOfGrid(VideoOfFrames(frames)).image_tokens;
  return (frames + spec_.frames - 1) / spec_.frames * least_tokens();
}

PictureLoad ImageProcessor::Measure(ImageSize size, int64_t pictures) const {
  EQUIPOISE_CHECK(spec_.takes_pictures(), "the model takes no pictures");
  if (spec_.lists_grids()) return spec_.LoadOfGrid(GridOf(size, pictures));
  if (spec_.kind == ImageSpec::Kind::kSquare) {
    RequireSquare(size, spec_.fit);
    return spec_.LoadOfTiles(1);
  }
  return spec_.LoadOfTiles(CountTiles(size, tiles_, pictures, spec_.tile_size));
}

PatchGrid ImageProcessor::GridOf(ImageSize size, int64_t pictures) const {
  if (spec_.lone_tiles && pictures > 1) {
    RequireSquare(size, spec_.fit);
    return OnlySquare(spec_);
  }
  if (!spec_.has_grids()) return {size.height, size.width};
  const PatchGrid squares =
      Squares({static_cast<double>(size.height), static_cast<double>(size.width), 1, 1},
              static_cast<double>(spec_.patch_size * spec_.merge),
              static_cast<double>(spec_.min_pixels), static_cast<double>(spec_.max_pixels));
  return {squares.rows * spec_.merge, squares.columns * spec_.merge};
}

// The most pixels of a frame, or of all, as the spec's limits are.
int64_t ImageProcessor::MostPixels(const Video& video) const {
  const ImageSpec::Videos& videos = spec_.videos;
  if (videos.capped_tokens == 0) return videos.max_pixels;
  const int64_t token = spec_.patch_size * spec_.merge;
  const auto pixels = static_cast<double>(videos.capped_tokens * token * token);
  const auto least = static_cast<int64_t>(static_cast<double>(videos.min_pixels) * 1.05);
  if (videos.of_all_frames) {
    const auto frames = std::max<int64_t>(static_cast<int64_t>(video.whole), 1);
    return frames *
           std::max(std::min(static_cast<int64_t>(pixels), videos.max_pixels / frames), least);
  }
  const int64_t share =
      static_cast<int64_t>(pixels * 0.9) * spec_.frames / static_cast<int64_t>(video.frames);
  return std::max(std::min(videos.max_pixels, share), least);
}

PatchGrid ImageProcessor::GridOf(ImageSize size, const Video& video) const {
  if (!spec_.has_grids()) return VideoOfFrames(static_cast<int64_t>(video.frames));
  const ImageSpec::Videos& videos = spec_.videos;
  const auto factor = static_cast<double>(spec_.patch_size * spec_.merge);
  Resizing from{static_cast<double>(size.height), static_cast<double>(size.width), 1, 1};
  if (videos.of_all_frames) {
    if (from.height < factor || from.width < factor) {
      const double scale = std::max(factor / from.height, factor / from.width);
      from.height = std::trunc(from.height * scale);
      from.width = std::trunc(from.width * scale);
    }
    const auto together = static_cast<double>(spec_.frames);
    // A single frame, which Transformers refuses, counts as often as it is repeated.
    from.frames = std::max(static_cast<double>(video.whole), together);
    from.rounded_frames = std::nearbyint(from.frames / together) * together;
  }
  const PatchGrid squares = Squares(from, factor, static_cast<double>(videos.min_pixels),
                                    static_cast<double>(MostPixels(video)));
  PatchGrid grid{squares.rows * spec_.merge, squares.columns * spec_.merge};
  grid.times = (static_cast<int64_t>(video.frames) + spec_.frames - 1) / spec_.frames;
  if (videos.positions_per_second > 0) {  // the product in fp32, as of Transformers' tensors
    const auto seconds = static_cast<float>(static_cast<double>(spec_.frames) / video.fps);
    grid.time_step = static_cast<float>(videos.positions_per_second) * seconds;
  }
  return grid;
}

}  // namespace equipoise
