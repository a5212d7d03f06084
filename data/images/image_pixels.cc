#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

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

}  // namespace

at::Tensor ImageProcessor::Make(const at::Tensor& image, int64_t pictures) const {
  EQUIPOISE_CHECK(image.dim() == 3 && image.size(2) == kChannels &&
                  image.scalar_type() == at::kByte && image.is_contiguous());
  const ImageSize size{image.size(1), image.size(0)};
  const int64_t tile_size = spec_.tile_size;
  const TileGrid grid = ChooseGrid(size, tiles_, pictures, tile_size);
  const int64_t count = spec_.TilesOf(Measure(size, pictures).patches);
  const NormalizationTable table = MakeNormalization(spec_);
  const int64_t tile_floats = kChannels * tile_size * tile_size;
  at::Tensor tiles = at::empty({count, kChannels, tile_size, tile_size}, at::kFloat);
  float* out = tiles.mutable_data_ptr<float>();

  const ImageSize resized{grid.columns * tile_size, grid.rows * tile_size};
  std::vector<uint8_t> pixels(static_cast<size_t>(kChannels * resized.width * resized.height));
  ResizeBicubicRgb(image.const_data_ptr<uint8_t>(), size, pixels.data(), resized);
  const int64_t row_bytes = kChannels * resized.width;
  for (int64_t row = 0; row < grid.rows; ++row) {
    for (int64_t column = 0; column < grid.columns; ++column, out += tile_floats) {
      const int64_t first = row * tile_size * row_bytes + column * tile_size * kChannels;
      WriteTile(pixels.data() + first, row_bytes, tile_size, table, out);
    }
  }
  if (count > grid.columns * grid.rows) {
    ResizeBicubicRgb(image.const_data_ptr<uint8_t>(), size, pixels.data(), {tile_size, tile_size});
    WriteTile(pixels.data(), kChannels * tile_size, tile_size, table, out);
  }
  return tiles;
}

}  // namespace equipoise
