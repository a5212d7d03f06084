#pragma once

#include <cstdint>

#include "configs/yaml/fields.h"

namespace equipoise {

// Dynamic loss scaling (Micikevicius et al., arXiv 1710.03740, section 3.2; PyTorch's GradScaler),
// in the section `train`.
struct LossScaleSection {
  // A scale at which neither it nor its inverse leaves fp32.
  static constexpr int64_t kMost = int64_t{1} << 40;

  int64_t initial = 65536;
  int64_t growth_interval = 2000;
  int64_t minimum = 1;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("initial", initial, "of the first step; a power of two", Between(1, kMost));
    visit("growth_interval", growth_interval,
          "steps without an overflow after which it is doubled; an overflow halves it",
          Between(1, 1e12));
    visit("minimum", minimum, "it becomes no smaller; a power of two", Between(1, kMost));
  }
};

// The scale at a step, which checkpoints keep.
struct LossScale {
  double scale = 1;
  int64_t good_steps = 0;  // without an overflow, since the scale was changed

  bool operator==(const LossScale&) const = default;
};

}  // namespace equipoise
