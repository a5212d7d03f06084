#include "trainer/settings/offload.h"

#include <fmt/format.h>

#include <algorithm>

#include "configs/base/error.h"

namespace equipoise {

bool Offloads(const std::vector<OffloadedState>& states, OffloadedState state) {
  for (const OffloadedState each : states) {
    if (each == OffloadedState::kOptimizer || each == OffloadedState::kActivations) continue;
    throw ConfigError(
        fmt::format("train.offload: {} cannot be offloaded yet; use [optimizer, activations], and "
                    "parallel.zero: 3 for what does not fit then",
                    ToString(each)));
  }
  return std::find(states.begin(), states.end(), state) != states.end();
}

}  // namespace equipoise
