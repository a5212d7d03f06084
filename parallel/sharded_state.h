#pragma once

#include <cstdint>

namespace equipoise {

// Training state that data-parallel ranks share out in place of a copy each: the stages of ZeRO
// (Rajbhandari et al. 2020), each of which includes the one before it. Only kNone and kOptimizer
// can be run as yet; `parallel.zero` takes no other.
enum class ShardedState : uint8_t { kNone, kOptimizer, kGradients, kParameters };

// The number of ZeRO's stage, as `parallel.zero` has it: 0 for kNone, 1 for kOptimizer, ...
constexpr int ZeroStage(ShardedState state) { return static_cast<int>(state); }
constexpr int FieldValue(ShardedState state) { return ZeroStage(state); }
// The inverse. REQUIRES: 0 <= stage <= 3.
constexpr ShardedState ShardedStateOf(int zero_stage) {
  return static_cast<ShardedState>(zero_stage);
}

}  // namespace equipoise
