#pragma once

#include <cstdint>
#include <vector>

#include "models/spec/image_spec.h"

namespace equipoise {

// The order in which an encoder with windows computes on the patches of a micro-batch's pictures,
// and the segments of its attention. Squares of merge * merge patches, which become one token, stay
// together: they are ordered window by window, within a picture.
struct PatchLayout {
  // Of the square that is computed at each place, its place among all squares as they come. Empty
  // without windows: in the order in which they come.
  std::vector<int64_t> order;
  // Ends of the segments in computed patches, from 0 on: of pictures, and of windows.
  std::vector<int64_t> pictures, windows;
  std::vector<int64_t> rows, columns;  // of each computed patch, in its picture
};

PatchLayout LayoutOf(const std::vector<PatchGrid>& grids, const ImageSpec& images);

}  // namespace equipoise
