#pragma once

#include <cstdint>

namespace equipoise {

// Where parameters begin in flat buffers, and slices of them (parallel/shards.h): at multiples of
// this many elements, and so of Shards::kBlock. Blocks of so many elements of a parameter that
// share a scale (parallel/zero/kernels/moment_codes.h) are thus whole on one data rank, and the
// same for every number of ranks.
constexpr int64_t kFlatAlignment = 256;

}  // namespace equipoise
