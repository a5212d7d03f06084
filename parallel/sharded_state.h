#pragma once

#include <cstdint>

namespace equipoise {

// Training state that data-parallel ranks share out in place of a copy each: the stages of ZeRO
// (Rajbhandari et al. 2020), each of which includes the one before it.
enum class ShardedState : uint8_t { kNone, kOptimizer, kGradients, kParameters };

// The number of ZeRO's stage, as `parallel.zero` has it: 0 for kNone, 1 for kOptimizer, ...
constexpr int ZeroStage(ShardedState state) { return static_cast<int>(state); }
constexpr int FieldValue(ShardedState state) { return ZeroStage(state); }
// The inverse. REQUIRES: 0 <= stage <= 3.
constexpr ShardedState ShardedStateOf(int zero_stage) {
  return static_cast<ShardedState>(zero_stage);
}

// What one of `ranks` data ranks holds of that state.
struct Sharding {
  ShardedState state = ShardedState::kNone;
  int ranks = 1;
  int rank = 0;
  // What of it lies in host memory, as Plan::offloaded.
  ShardedState offloaded = ShardedState::kNone;

  bool Shares(ShardedState what) const { return state >= what && (ranks > 1 || Offloads(what)); }
  bool Offloads(ShardedState what) const { return offloaded >= what; }
  bool gradients() const { return Shares(ShardedState::kGradients); }
  bool values() const { return Shares(ShardedState::kParameters); }
};

}  // namespace equipoise
