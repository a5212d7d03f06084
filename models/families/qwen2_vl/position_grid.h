#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "models/families/qwen2_vl/patch_layout.h"
#include "models/spec/image_spec.h"

namespace equipoise {

// The place of each patch of a micro-batch's pictures in a square of `side` * `side` learned
// positions, whose corners are those of every picture: bilinear, the weighted sum of four.
struct PositionGrid {
  std::array<std::vector<int64_t>, 4> corners;  // numbers of positions, row by row
  std::array<std::vector<float>, 4> weights;
};

// In the order in which `layout`, that of the pictures, computes the patches.
PositionGrid PositionGridOf(const PatchLayout& layout, const std::vector<PatchGrid>& pictures,
                            int64_t side);

}  // namespace equipoise
