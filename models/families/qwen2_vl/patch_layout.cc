#include "models/families/qwen2_vl/patch_layout.h"

#include <algorithm>

namespace equipoise {
namespace {

// Adds the squares of one window: squares [top, bottom) x [left, right) of a picture `across`
// squares wide, the first of which is number `first`.
struct Window {
  int64_t top, bottom, left, right;
};

void AddWindow(const Window& window, int64_t across, int64_t first, int64_t merge,
               PatchLayout& layout) {
  for (int64_t row = window.top; row < window.bottom; ++row) {
    for (int64_t column = window.left; column < window.right; ++column) {
      layout.order.push_back(first + row * across + column);
      for (int64_t i = 0; i < merge * merge; ++i) {
        layout.rows.push_back(row * merge + i / merge);
        layout.columns.push_back(column * merge + i % merge);
      }
    }
  }
}

}  // namespace

PatchLayout LayoutOf(const std::vector<PatchGrid>& grids, const ImageSpec& images) {
  const int64_t merge = images.merge;
  PatchLayout layout;
  layout.pictures = layout.windows = {0};
  int64_t first = 0;  // square
  for (const PatchGrid& grid : grids) {
    const int64_t down = grid.rows / merge, across = grid.columns / merge;
    const int64_t side = images.window > 0 ? images.window / merge : std::max(down, across);
    for (int64_t top = 0; top < down; top += side) {
      for (int64_t left = 0; left < across; left += side) {
        AddWindow({top, std::min(top + side, down), left, std::min(left + side, across)}, across,
                  first, merge, layout);
        layout.windows.push_back(static_cast<int64_t>(layout.rows.size()));
      }
    }
    layout.pictures.push_back(static_cast<int64_t>(layout.rows.size()));
    first += down * across;
  }
  if (images.window == 0) layout.order.clear();
  return layout;
}

}  // namespace equipoise
