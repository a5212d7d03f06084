#pragma once

#include <cstdint>

namespace equipoise {

// Assignment of a chain of stages to ranks that hold several stages each. After the last rank a
// loop begins again at the first (interleaved 1F1B, arXiv 2104.04473); a V turns back, so that the
// first rank holds both ends of the chain (ZB-V, arXiv 2401.10241); in blocks, a rank's stages
// follow each other.
enum class Placement : uint8_t { kLoop, kV, kBlocks };

// The rank, of `ranks`, that holds the stage at `place` of the chain, `chunks` stages a rank.
constexpr int RankOfPlace(Placement placement, int place, int ranks, int chunks = 1) {
  if (placement == Placement::kBlocks) return place / chunks;
  const int round = place / ranks, at = place % ranks;
  return placement == Placement::kV && round % 2 == 1 ? ranks - 1 - at : at;
}

}  // namespace equipoise
