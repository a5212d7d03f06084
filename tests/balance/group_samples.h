#pragma once

#include <cstdint>
#include <vector>

#include "balance/load/random.h"
#include "balance/load/sample_groups.h"

namespace equipoise {

// Samples with the tiles of InternVL-1.2M at 4 tiles a picture (1, 3, 4, 5: 61, 28, 1, 10 %), 256
// tokens a tile and a text of 40 to 400 tokens; one in 33 is text alone, with one tile.
inline std::vector<SampleSize> MixedSamples(int64_t count) {
  SplitMix random(11);
  std::vector<SampleSize> sizes;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t u = random.Below(100);
    const int32_t tiles = u < 61 ? 1 : u < 89 ? 3 : u < 90 ? 4 : 5;
    const auto text = static_cast<int32_t>(40 + random.Below(180) + random.Below(180));
    if (random.Below(33) == 0)
      sizes.push_back({1, 40 + static_cast<int32_t>(random.Below(1600))});
    else
      sizes.push_back({tiles, 256 * tiles + 2 + text});
  }
  return sizes;
}

}  // namespace equipoise
