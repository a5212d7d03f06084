#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/plan.h"

namespace equipoise {

// One way to treat a layer of a rank.
struct RecomputeOption {
  Recompute kind = Recompute::kNone;
  double seconds = 0;  // added to the rank's step
  int64_t bytes = 0;   // kept at the rank's peak, over all micro-batches in flight then
};

// Balanced adaptive re-computation (OmniBal, arXiv 2407.20761): for each layer of a rank the option
// to take so that all kept bytes together are at most `budget_bytes` and the added time is least;
// among equals, fewest bytes. Vision and language layers are told apart by their options alone.
// Exact: the combinations that no other beats in both time and bytes are carried from layer to
// layer; layers of equal options keep these few. Nothing when not even the least bytes fit.
// REQUIRES: every layer has an option.
std::optional<std::vector<Recompute>> LeastRecompute(
    const std::vector<std::vector<RecomputeOption>>& layers, int64_t budget_bytes);

}  // namespace equipoise
