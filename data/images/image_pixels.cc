#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "configs/base/error.h"
#include "data/images/image_codec.h"
#include "data/images/image_grid.h"
#include "data/images/image_processor.h"
#include "models/spec/any_resolution.h"

namespace equipoise {
namespace {

constexpr int64_t kChannels = 3;

// The whole of a picture.
ImageWindow All(ImageSize size) { return {0, 0, size}; }

// Tiles of `side` x `side` pixels, `columns` side by side, each of three planes; one after the
// other from `out` on, row by row. They get a picture whose first pixel is at (left, top) of all.
struct Tiles {
  int64_t side, columns;
  uint8_t* out;
  int64_t left = 0, top = 0;

  // Writes a row of the picture, of `width` pixels, three planes.
  void Write(int64_t row, const uint8_t* planes, int64_t width) const {
    const int64_t plane = side * side, x = left, y = top + row;
    for (int64_t done = 0; done < width;) {
      const int64_t column = (x + done) / side, within = (x + done) % side;
      const int64_t count = std::min(width - done, side - within);
      uint8_t* to = out + kChannels * plane * (y / side * columns + column) + y % side * side;
      for (int64_t channel = 0; channel < kChannels; ++channel) {
        std::copy_n(planes + channel * width + done, count, to + channel * plane + within);
      }
      done += count;
    }
  }
};

// Resizes a picture to `to` and writes a window of that to tiles.
void ResizeToTiles(const uint8_t* rgb, ImageSize size, ImageSize to, const ImageWindow& window,
                   const Tiles& tiles, ResizeFilter filter = ResizeFilter::kBicubic) {
  ResizePlanes(rgb, size, to, filter, window, [&](int64_t row, const uint8_t* planes) {
    tiles.Write(row, planes, window.size.width);
  });
}

// Copies a row of a patch. The usual lengths are known to the compiler: no call.
void CopyRow(const uint8_t* from, int64_t side, uint8_t* to) {
  if (side == 14) {
    std::memcpy(to, from, 14);
  } else if (side == 16) {
    std::memcpy(to, from, 16);
  } else {
    std::copy_n(from, side, to);
  }
}

// The picture in the middle of a square of the mean colour, whose side is its longer one.
PaddedPicture Padded(const uint8_t* rgb, ImageSize size, const ImageSpec& spec) {
  const int64_t side = std::max(size.width, size.height);
  PaddedPicture picture{rgb, size, {side, side}, {}};
  for (size_t channel = 0; channel < kChannels; ++channel)
    picture.colour[channel] = static_cast<uint8_t>(spec.mean[channel] * 255.0F);
  return picture;
}

}  // namespace

at::Tensor ImageProcessor::Make(const at::Tensor& image, int64_t pictures) const {
  EQUIPOISE_CHECK(image.dim() == 3 && image.size(2) == kChannels &&
                  image.scalar_type() == at::kByte && image.is_contiguous());
  if (spec_.has_grids()) return MakePatches(image);
  if (spec_.lone_tiles && pictures > 1) return MakeSquare(image);
  if (spec_.kind == ImageSpec::Kind::kAnyRes) return MakeAnyResolution(image);
  return spec_.kind == ImageSpec::Kind::kSquare ? MakeSquare(image) : MakeTiles(image, pictures);
}

at::Tensor ImageProcessor::MakeSquare(const at::Tensor& image) const {
  at::Tensor tile = at::empty({1, kChannels, spec_.tile_size, spec_.tile_size}, at::kByte);
  WriteSquare(image, spec_.fit, tile.mutable_data_ptr<uint8_t>());
  return tile;
}

void ImageProcessor::WriteSquare(const at::Tensor& image, ImageSpec::Fit fit, uint8_t* out) const {
  const uint8_t* rgb = image.const_data_ptr<uint8_t>();
  const int64_t side = spec_.tile_size;
  const ImageSize size{image.size(1), image.size(0)};
  ImageSize to{side, side};
  const Tiles tile{side, 1, out};
  const ResizeFilter filter = spec_.bilinear ? ResizeFilter::kBilinear : ResizeFilter::kBicubic;
  if (fit == ImageSpec::Fit::kPad && size.width != size.height) {
    const auto write = [&](int64_t y, const uint8_t* planes) { tile.Write(y, planes, side); };
    return ResizePaddedPlanes(Padded(rgb, size, spec_), to, filter, All(to), write);
  }
  if (fit == ImageSpec::Fit::kCrop) {  // the longer side is rounded down
    const int64_t shorter = std::min(size.width, size.height);
    to = {side * size.width / shorter, side * size.height / shorter};
  }
  const ImageWindow middle{(to.width - side) / 2, (to.height - side) / 2, {side, side}};
  ResizeToTiles(rgb, size, to, middle, tile, filter);
}

at::Tensor ImageProcessor::MakePatches(const at::Tensor& image) const {
  const PatchGrid grid = GridOf({image.size(1), image.size(0)});
  at::Tensor patches = at::empty({grid.patches(), spec_.patch_numbers()}, at::kByte);
  WritePatches({image}, grid, patches.mutable_data_ptr<uint8_t>());
  return patches;
}

at::Tensor ImageProcessor::Make(ImageSize size, const Video& video,
                                const std::function<at::Tensor(size_t frame)>& decode) const {
  if (!spec_.has_grids()) {
    const int64_t side = spec_.tile_size, count = static_cast<int64_t>(video.frames);
    at::Tensor tiles = at::empty({count, kChannels, side, side}, at::kByte);
    uint8_t* out = tiles.mutable_data_ptr<uint8_t>();
    for (size_t frame = 0; frame < video.frames; ++frame, out += kChannels * side * side) {
      WriteSquare(decode(frame), ImageSpec::Fit::kStretch, out);
    }
    return tiles;
  }
  const PatchGrid grid = GridOf(size, video);
  at::Tensor patches = at::empty({grid.patches(), spec_.patch_numbers()}, at::kByte);
  uint8_t* out = patches.mutable_data_ptr<uint8_t>();
  std::vector<at::Tensor> frames;  // of one time
  for (size_t frame = 0; frame < video.frames; ++frame) {
    frames.push_back(decode(frame));
    if (std::ssize(frames) < spec_.frames && frame + 1 < video.frames) continue;
    WritePatches(frames, grid, out);
    out += grid.rows * grid.columns * spec_.patch_numbers();
    frames.clear();
  }
  return patches;
}

void ImageProcessor::WritePatches(const std::vector<at::Tensor>& frames, const PatchGrid& grid,
                                  uint8_t* out) const {
  const int64_t side = spec_.patch_size, merge = spec_.merge, plane = side * side;
  const ImageSize to{grid.columns * side, grid.rows * side};
  const int64_t given = std::ssize(frames);
  for (int64_t frame = 0; frame < given; ++frame) {
    const at::Tensor& image = frames[static_cast<size_t>(frame)];
    const int64_t end = frame + 1 < given ? frame + 1 : spec_.frames;  // the last is repeated
    const auto write = [&](int64_t y, const uint8_t* planes) {
      const int64_t row = y / side, squares = grid.columns / merge;
      // The number of the row's first patch, square by square.
      const int64_t first = (row / merge * squares * merge + row % merge) * merge;
      uint8_t* square = out + first * spec_.patch_numbers() + y % side * side;
      const uint8_t* from = planes;
      for (int64_t i = 0; i < squares; ++i, square += merge * merge * spec_.patch_numbers()) {
        uint8_t* patch = square;
        for (int64_t j = 0; j < merge; ++j, patch += spec_.patch_numbers(), from += side) {
          for (int64_t channel = 0; channel < kChannels; ++channel) {
            for (int64_t k = frame; k < end; ++k)
              CopyRow(from + channel * to.width, side,
                      patch + (channel * spec_.frames + k) * plane);
          }
        }
      }
    };
    ResizePlanes(image.const_data_ptr<uint8_t>(), {image.size(1), image.size(0)}, to,
                 ResizeFilter::kBicubic, All(to), write);
  }
}

at::Tensor ImageProcessor::MakeAnyResolution(const at::Tensor& image) const {
  const uint8_t* rgb = image.const_data_ptr<uint8_t>();
  const ImageSize size{image.size(1), image.size(0)};
  const int64_t side = spec_.tile_size, tile_bytes = kChannels * side * side;
  const PatchGrid tiles = BestResolution(spec_, GridOf(size));
  const PatchGrid within = SizeWithin({tiles.rows * side, tiles.columns * side}, GridOf(size));
  at::Tensor made = at::empty({1 + tiles.patches(), kChannels, side, side}, at::kByte);
  uint8_t* out = made.mutable_data_ptr<uint8_t>();
  const ImageSize square{side, side}, inner{within.columns, within.rows};
  ResizeToTiles(rgb, size, square, All(square), {side, 1, out});
  // In the middle of a black picture, the odd row or column after it.
  out += tile_bytes;
  std::fill_n(out, tile_bytes * tiles.patches(), uint8_t{0});
  const int64_t left = (tiles.columns * side - inner.width) / 2;
  const int64_t top = (tiles.rows * side - inner.height) / 2;
  ResizeToTiles(rgb, size, inner, All(inner), {side, tiles.columns, out, left, top});
  return made;
}

at::Tensor ImageProcessor::MakeTiles(const at::Tensor& image, int64_t pictures) const {
  const ImageSize size{image.size(1), image.size(0)};
  const int64_t tile_size = spec_.tile_size;
  const TileGrid grid = ChooseGrid(size, tiles_, pictures, tile_size);
  const int64_t count = spec_.TilesOf(Measure(size, pictures).patches);
  at::Tensor tiles = at::empty({count, kChannels, tile_size, tile_size}, at::kByte);
  uint8_t* out = tiles.mutable_data_ptr<uint8_t>();

  const uint8_t* rgb = image.const_data_ptr<uint8_t>();
  const ImageSize all{grid.columns * tile_size, grid.rows * tile_size};
  const ImageSize thumbnail{tile_size, tile_size};
  ResizeToTiles(rgb, size, all, All(all), {tile_size, grid.columns, out});
  const int64_t in_grid = grid.columns * grid.rows;
  if (count > in_grid) {
    out += in_grid * kChannels * tile_size * tile_size;
    ResizeToTiles(rgb, size, thumbnail, All(thumbnail), {tile_size, 1, out});
  }
  return tiles;
}

}  // namespace equipoise
