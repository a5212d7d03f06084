#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <vector>

#include "configs/base/error.h"
#include "data/images/image_codec.h"
#include "data/images/image_grid.h"
#include "data/images/image_processor.h"

namespace equipoise {
namespace {

constexpr int64_t kChannels = 3;

// Normalized value of each byte of each channel: 768 divisions a picture instead of two a pixel.
using NormalizationTable = std::array<std::array<float, 256>, kChannels>;

NormalizationTable MakeNormalization(const ImageSpec& spec) {
  NormalizationTable table;
  for (size_t channel = 0; channel < kChannels; ++channel) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const float scaled = static_cast<float>(byte) / 255.0F;
      table[channel][byte] = (scaled - spec.mean[channel]) / spec.deviation[channel];
    }
  }
  return table;
}

// Writes a tile of `side` x `side` pixels, the first of which is at `rgb`, as three planes to
// `out`.
void WriteTile(const uint8_t* rgb, int64_t row_bytes, int64_t side, const NormalizationTable& table,
               float* out) {
  for (int64_t y = 0; y < side; ++y) {
    const uint8_t* row = rgb + y * row_bytes;
    for (size_t channel = 0; channel < kChannels; ++channel) {
      const std::array<float, 256>& values = table[channel];
      float* to = out + (static_cast<int64_t>(channel) * side + y) * side;
      for (int64_t x = 0; x < side; ++x)
        to[x] = values[row[x * kChannels + static_cast<int64_t>(channel)]];
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

// The picture in the middle of a square of the mean colour, whose side is its longer one.
Pixels Padded(const uint8_t* rgb, ImageSize size, const ImageSpec& spec) {
  const int64_t side = std::max(size.width, size.height);
  Pixels square{{side, side}, std::vector<uint8_t>(static_cast<size_t>(kChannels * side * side))};
  for (size_t i = 0; i < square.rgb.size(); ++i) {
    square.rgb[i] = static_cast<uint8_t>(spec.mean[i % kChannels] * 255.0F);
  }
  const int64_t top = (side - size.height) / 2, left = (side - size.width) / 2;
  for (int64_t y = 0; y < size.height; ++y) {
    const uint8_t* row = rgb + y * kChannels * size.width;
    std::copy_n(row, kChannels * size.width,
                square.rgb.begin() + kChannels * ((top + y) * side + left));
  }
  return square;
}

}  // namespace

at::Tensor ImageProcessor::Make(const at::Tensor& image, int64_t pictures) const {
  EQUIPOISE_CHECK(image.dim() == 3 && image.size(2) == kChannels &&
                  image.scalar_type() == at::kByte && image.is_contiguous());
  return spec_.kind == ImageSpec::Kind::kSquare ? MakeSquare(image) : MakeTiles(image, pictures);
}

at::Tensor ImageProcessor::MakeSquare(const at::Tensor& image) const {
  const uint8_t* rgb = image.const_data_ptr<uint8_t>();
  const int64_t side = spec_.tile_size;
  ImageSize size{image.size(1), image.size(0)}, to{side, side};
  Pixels padded;
  if (spec_.fit == ImageSpec::Fit::kPad && size.width != size.height) {
    padded = Padded(rgb, size, spec_);
    rgb = padded.rgb.data();
    size = padded.size;
  }
  if (spec_.fit == ImageSpec::Fit::kCrop) {  // the longer side is rounded down
    const int64_t shorter = std::min(size.width, size.height);
    to = {side * size.width / shorter, side * size.height / shorter};
  }
  const Pixels resized = Resized(rgb, size, to);
  const int64_t top = (to.height - side) / 2, left = (to.width - side) / 2;
  at::Tensor tile = at::empty({1, kChannels, side, side}, at::kFloat);
  WriteTile(resized.rgb.data() + kChannels * (top * to.width + left), kChannels * to.width, side,
            MakeNormalization(spec_), tile.mutable_data_ptr<float>());
  return tile;
}

at::Tensor ImageProcessor::MakeTiles(const at::Tensor& image, int64_t pictures) const {
  const ImageSize size{image.size(1), image.size(0)};
  const int64_t tile_size = spec_.tile_size;
  const TileGrid grid = ChooseGrid(size, tiles_, pictures, tile_size);
  const int64_t count = spec_.TilesOf(Measure(size, pictures).patches);
  const NormalizationTable table = MakeNormalization(spec_);
  const int64_t tile_floats = kChannels * tile_size * tile_size;
  at::Tensor tiles = at::empty({count, kChannels, tile_size, tile_size}, at::kFloat);
  float* out = tiles.mutable_data_ptr<float>();

  const ImageSize resized{grid.columns * tile_size, grid.rows * tile_size};
  Pixels pixels = Resized(image.const_data_ptr<uint8_t>(), size, resized);
  const int64_t row_bytes = kChannels * resized.width;
  for (int64_t row = 0; row < grid.rows; ++row) {
    for (int64_t column = 0; column < grid.columns; ++column, out += tile_floats) {
      const int64_t first = row * tile_size * row_bytes + column * tile_size * kChannels;
      WriteTile(pixels.rgb.data() + first, row_bytes, tile_size, table, out);
    }
  }
  if (count > grid.columns * grid.rows) {
    pixels = Resized(image.const_data_ptr<uint8_t>(), size, {tile_size, tile_size});
    WriteTile(pixels.rgb.data(), kChannels * tile_size, tile_size, table, out);
  }
  return tiles;
}

}  // namespace equipoise
