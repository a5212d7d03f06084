#include "trainer/settings/offload.h"

#include <fmt/format.h>

#include <algorithm>

#include "configs/base/error.h"

namespace equipoise {

bool Offloads(const std::vector<OffloadedState>& states, OffloadedState state) {
  return std::find(states.begin(), states.end(), state) != states.end();
}

ShardedState OffloadedOf(const std::vector<OffloadedState>& states) {
  const auto has = [&](OffloadedState state) { return Offloads(states, state); };
  const auto require = [&](OffloadedState state, OffloadedState before) {
    if (!has(state) || has(before)) return;
    throw ConfigError(fmt::format("train.offload: {} lie in host memory only with {}; add {}",
                                  ToString(state), ToString(before), ToString(before)));
  };
  require(OffloadedState::kParameters, OffloadedState::kGradients);
  require(OffloadedState::kGradients, OffloadedState::kOptimizer);
  if (has(OffloadedState::kParameters)) return ShardedState::kParameters;
  if (has(OffloadedState::kGradients)) return ShardedState::kGradients;
  return has(OffloadedState::kOptimizer) ? ShardedState::kOptimizer : ShardedState::kNone;
}

std::optional<ShardedState> ZeroFor(const std::vector<OffloadedState>& states,
                                    const std::optional<int64_t>& given) {
  const ShardedState offloaded = OffloadedOf(states);
  const bool by_layer = offloaded >= ShardedState::kGradients;
  if (!given) return by_layer ? std::optional(offloaded) : std::nullopt;
  const ShardedState sharded = ShardedStateOf(static_cast<int>(*given));
  if (by_layer && sharded < offloaded) {
    throw ConfigError(fmt::format(
        "parallel.zero: {} keeps {} whole, which train.offload has in host memory layer by layer; "
        "set it to {}, or leave it out",
        *given, offloaded == ShardedState::kGradients ? "gradients" : "parameters",
        ZeroStage(offloaded)));
  }
  return sharded;
}

}  // namespace equipoise
