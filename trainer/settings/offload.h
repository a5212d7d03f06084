#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "configs/base/enum_names.h"
#include "parallel/sharded_state.h"

namespace equipoise {

// State of a training step that may lie in host memory in place of a GPU's (train.offload).
enum class OffloadedState : uint8_t { kOptimizer, kGradients, kParameters, kActivations };

constexpr auto NamesOf(OffloadedState) {
  return std::to_array<EnumName<OffloadedState>>({{OffloadedState::kOptimizer, "optimizer"},
                                                  {OffloadedState::kGradients, "gradients"},
                                                  {OffloadedState::kParameters, "parameters"},
                                                  {OffloadedState::kActivations, "activations"}});
}

// Whether one is among them.
bool Offloads(const std::vector<OffloadedState>& states, OffloadedState state);

// What lies there of the state that ZeRO shares out: none, the optimizer's, with it the gradients,
// with both the parameters. Throws ConfigError for one without those before it.
ShardedState OffloadedOf(const std::vector<OffloadedState>& states);

// The stage of ZeRO that goes with them: what is given, or the least that they need; absent: any.
// Throws ConfigError where that is less than they need.
std::optional<ShardedState> ZeroFor(const std::vector<OffloadedState>& states,
                                    const std::optional<int64_t>& given);

}  // namespace equipoise
