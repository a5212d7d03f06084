#include "trainer/settings/offload.h"

#include <fmt/format.h>

#include "configs/base/error.h"

namespace equipoise {

bool OffloadsOptimizer(const std::vector<OffloadedState>& states) {
  for (const OffloadedState state : states) {
    if (state == OffloadedState::kOptimizer) continue;
    throw ConfigError(fmt::format(
        "train.offload: {} cannot be offloaded yet; use [optimizer], and parallel.zero: 3 or "
        "balance.recompute for what does not fit then",
        ToString(state)));
  }
  return !states.empty();
}

}  // namespace equipoise
