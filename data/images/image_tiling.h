#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "data/images/image.h"
#include "data/images/image_grid.h"
#include "data/settings/data_config.h"

namespace equipoise {

// [CountTiles(...), 3, tile_size, tile_size] fp32 of `image`, [height, width, 3] uint8: resized to
// the grid, cut row by row, the thumbnail (a second resize of the original) last, then (x / 255 -
// mean) / deviation of ImageNet, in fp32 and in this order, as torchvision's ToTensor and Normalize
// do.
at::Tensor MakeTiles(const at::Tensor& image, const TilesConfig& config, int64_t pictures,
                     int64_t tile_size);

}  // namespace equipoise
