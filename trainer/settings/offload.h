#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "configs/base/enum_names.h"

namespace equipoise {

// State of a training step that may lie in host memory in place of a GPU's (train.offload).
enum class OffloadedState : uint8_t { kOptimizer, kGradients, kParameters, kActivations };

constexpr auto NamesOf(OffloadedState) {
  return std::to_array<EnumName<OffloadedState>>({{OffloadedState::kOptimizer, "optimizer"},
                                                  {OffloadedState::kGradients, "gradients"},
                                                  {OffloadedState::kParameters, "parameters"},
                                                  {OffloadedState::kActivations, "activations"}});
}

// Whether one is among them. Throws ConfigError for what is not built yet.
bool Offloads(const std::vector<OffloadedState>& states, OffloadedState state);

}  // namespace equipoise
