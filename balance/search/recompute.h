#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/plan.h"

namespace equipoise {

// An option of recomputation for a layer of a rank.
struct RecomputeOption {
  Recompute kind = Recompute::kNone;
  double seconds = 0;  // added to the rank's step
  int64_t bytes = 0;   // saved at the rank's peak, over all micro-batches in flight then
};

// Balanced adaptive re-computation (OmniBal, arXiv 2407.20761): an option for each layer of a rank,
// so that saved bytes are at most `budget_bytes` in all and the added time is least; among equals,
// with the fewest bytes. Vision and language layers differ only in their options. Exact. Empty when
// even the fewest bytes do not fit. REQUIRES: every layer has an option.
class LeastRecomputation {
 public:
  // For budgets of up to `most_bytes`.
  LeastRecomputation(std::vector<std::vector<RecomputeOption>> layers, int64_t most_bytes);
  std::optional<std::vector<Recompute>> Within(int64_t budget_bytes) const;

  // A combination of options for the layers so far.
  struct Combination {
    double seconds = 0;
    int64_t bytes = 0;
    int from = 0;    // index of the combination of the layers before
    int option = 0;  // of the last layer
  };

 private:
  std::vector<std::vector<RecomputeOption>> layers_;
  int64_t most_bytes_;
  std::vector<std::vector<Combination>> fronts_;  // [layers so far]
};

// The same for one budget.
std::optional<std::vector<Recompute>> LeastRecompute(
    const std::vector<std::vector<RecomputeOption>>& layers, int64_t budget_bytes);

}  // namespace equipoise
