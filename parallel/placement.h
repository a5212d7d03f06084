#pragma once

#include <cstdint>

namespace equipoise {

// How a chain of stages is dealt to ranks that hold several each: begins again at the first rank
// after the last one, or turns back there, so that the first rank holds both ends.
enum class Placement : uint8_t { kLoop, kV };

// Which of `ranks` ranks holds the stage at `place` of such a chain.
constexpr int RankOfPlace(Placement placement, int place, int ranks) {
  const int round = place / ranks, at = place % ranks;
  return placement == Placement::kV && round % 2 == 1 ? ranks - 1 - at : at;
}

}  // namespace equipoise
