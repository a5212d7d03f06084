#pragma once

#include <ATen/core/Tensor.h>

namespace equipoise::ops {

// Cuts images [n, channels, size, size] -> [n, patches, channels * patch * patch] in `dtype`:
// patches in reading order, each flattened as a convolution's weight is. Pixels beyond the last
// whole patch are left out, as by a convolution without padding. Has no gradient.
at::Tensor CutIntoPatches(const at::Tensor& images, int64_t patch, at::ScalarType dtype);

// InternVL's pixel shuffle: x [n, 1 + side * side, hidden], the class token first ->
// [n, (side / r)^2, r * r * hidden]. The class token is dropped and every square of r x r patches
// becomes one row.
at::Tensor MergeSquares(const at::Tensor& x, int64_t r);

}  // namespace equipoise::ops
