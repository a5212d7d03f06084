#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "configs/base/error.h"
#include "data/images/image_codec.h"
#include "data/images/image_grid.h"
#include "data/images/image_processor.h"
#include "models/spec/any_resolution.h"

namespace equipoise {
namespace {

constexpr int64_t kChannels = 3;

// Writes a tile of `side` x `side` pixels, the first of which is at `rgb`, as three planes to
// `out`.
void WriteTile(const uint8_t* rgb, int64_t row_bytes, int64_t side, uint8_t* out) {
  for (int64_t y = 0; y < side; ++y) {
    const uint8_t* row = rgb + y * row_bytes;
    for (int64_t channel = 0; channel < kChannels; ++channel) {
      uint8_t* to = out + (channel * side + y) * side;
      for (int64_t x = 0; x < side; ++x) to[x] = row[x * kChannels + channel];
    }
  }
}

// Pixels of a picture, rows of 3 * width bytes.
struct Pixels {
  ImageSize size;
  std::vector<uint8_t> rgb;
};

Pixels Resized(const uint8_t* rgb, ImageSize size, ImageSize to) {
  Pixels resized{to, std::vector<uint8_t>(static_cast<size_t>(kChannels * to.width * to.height))};
  ResizeBicubicRgb(rgb, size, resized.rgb.data(), to);
  return resized;
}

// Writes a patch, whose first pixel is number `first` of each frame: of each channel its frames,
// the last as often as it takes to fill them.
void WritePatch(const std::vector<Pixels>& frames, int64_t first, const ImageSpec& spec,
                uint8_t* out) {
  const int64_t side = spec.patch_size, plane = side * side;
  const int64_t row_bytes = kChannels * frames[0].size.width, given = std::ssize(frames);
  for (int64_t channel = 0; channel < kChannels; ++channel) {
    for (int64_t frame = 0; frame < spec.frames; ++frame, out += plane) {
      if (frame >= given) {
        std::copy_n(out - plane, plane, out);
        continue;
      }
      const uint8_t* rgb = frames[static_cast<size_t>(frame)].rgb.data() + kChannels * first;
      for (int64_t y = 0; y < side; ++y) {
        for (int64_t x = 0; x < side; ++x) {
          out[y * side + x] = rgb[y * row_bytes + x * kChannels + channel];
        }
      }
    }
  }
}

// Copies a picture of `size` into the middle of a larger one, the odd row or column after it.
void CopyToMiddle(const uint8_t* rgb, ImageSize size, Pixels* into) {
  const int64_t top = (into->size.height - size.height) / 2;
  const int64_t left = (into->size.width - size.width) / 2;
  for (int64_t y = 0; y < size.height; ++y) {
    const uint8_t* row = rgb + y * kChannels * size.width;
    std::copy_n(row, kChannels * size.width,
                into->rgb.begin() + kChannels * ((top + y) * into->size.width + left));
  }
}

// The picture in the middle of a square of the mean colour, whose side is its longer one.
Pixels Padded(const uint8_t* rgb, ImageSize size, const ImageSpec& spec) {
  const int64_t side = std::max(size.width, size.height);
  Pixels square{{side, side}, std::vector<uint8_t>(static_cast<size_t>(kChannels * side * side))};
  for (size_t i = 0; i < square.rgb.size(); ++i) {
    square.rgb[i] = static_cast<uint8_t>(spec.mean[i % kChannels] * 255.0F);
  }
  CopyToMiddle(rgb, size, &square);
  return square;
}

// The picture in the middle of a black one.
Pixels PaddedWithBlack(const Pixels& picture, ImageSize to) {
  Pixels padded{to, std::vector<uint8_t>(static_cast<size_t>(kChannels * to.width * to.height))};
  CopyToMiddle(picture.rgb.data(), picture.size, &padded);
  return padded;
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
  ImageSize size{image.size(1), image.size(0)}, to{side, side};
  Pixels padded;
  if (fit == ImageSpec::Fit::kPad && size.width != size.height) {
    padded = Padded(rgb, size, spec_);
    rgb = padded.rgb.data();
    size = padded.size;
  }
  if (fit == ImageSpec::Fit::kCrop) {  // the longer side is rounded down
    const int64_t shorter = std::min(size.width, size.height);
    to = {side * size.width / shorter, side * size.height / shorter};
  }
  const Pixels resized = Resized(rgb, size, to);
  const int64_t top = (to.height - side) / 2, left = (to.width - side) / 2;
  WriteTile(resized.rgb.data() + kChannels * (top * to.width + left), kChannels * to.width, side,
            out);
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
  const int64_t side = spec_.patch_size, merge = spec_.merge;
  const ImageSize to{grid.columns * side, grid.rows * side};
  std::vector<Pixels> resized;
  for (const at::Tensor& frame : frames) {
    resized.push_back(Resized(frame.const_data_ptr<uint8_t>(), {frame.size(1), frame.size(0)}, to));
  }
  const auto write = [&](int64_t row, int64_t column) {
    WritePatch(resized, side * (row * to.width + column), spec_, out);
    out += spec_.patch_numbers();
  };
  for (int64_t row = 0; row < grid.rows; row += merge) {
    for (int64_t column = 0; column < grid.columns; column += merge) {
      for (int64_t i = 0; i < merge * merge; ++i) write(row + i / merge, column + i % merge);
    }
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
  WriteTile(Resized(rgb, size, {side, side}).rgb.data(), kChannels * side, side, out);
  const Pixels padded = PaddedWithBlack(Resized(rgb, size, {within.columns, within.rows}),
                                        {tiles.columns * side, tiles.rows * side});
  const int64_t row_bytes = kChannels * padded.size.width;
  for (int64_t i = 0; i < tiles.patches(); ++i) {
    const int64_t y = i / tiles.columns * side, x = i % tiles.columns * side;
    out += tile_bytes;
    WriteTile(padded.rgb.data() + y * row_bytes + kChannels * x, row_bytes, side, out);
  }
  return made;
}

at::Tensor ImageProcessor::MakeTiles(const at::Tensor& image, int64_t pictures) const {
  const ImageSize size{image.size(1), image.size(0)};
  const int64_t tile_size = spec_.tile_size;
  const TileGrid grid = ChooseGrid(size, tiles_, pictures, tile_size);
  const int64_t count = spec_.TilesOf(Measure(size, pictures).patches);
  const int64_t tile_bytes = kChannels * tile_size * tile_size;
  at::Tensor tiles = at::empty({count, kChannels, tile_size, tile_size}, at::kByte);
  uint8_t* out = tiles.mutable_data_ptr<uint8_t>();

  const ImageSize resized{grid.columns * tile_size, grid.rows * tile_size};
  Pixels pixels = Resized(image.const_data_ptr<uint8_t>(), size, resized);
  const int64_t row_bytes = kChannels * resized.width;
  for (int64_t row = 0; row < grid.rows; ++row) {
    for (int64_t column = 0; column < grid.columns; ++column, out += tile_bytes) {
      const int64_t first = row * tile_size * row_bytes + column * tile_size * kChannels;
      WriteTile(pixels.rgb.data() + first, row_bytes, tile_size, out);
    }
  }
  if (count > grid.columns * grid.rows) {
    pixels = Resized(image.const_data_ptr<uint8_t>(), size, {tile_size, tile_size});
    WriteTile(pixels.rgb.data(), kChannels * tile_size, tile_size, out);
  }
  return tiles;
}

}  // namespace equipoise
