#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "configs/base/enum_names.h"

namespace equipoise {

// `train.loss`: the weight of each target of a sample with x targets: 1, 1/x, 1/sqrt(x) (InternVL's
// loss_reduction).
enum class LossWeight : uint8_t { kToken, kSample, kSquare };

constexpr auto NamesOf(LossWeight) {
  return std::to_array<EnumName<LossWeight>>({{LossWeight::kToken, "token"},
                                              {LossWeight::kSample, "sample"},
                                              {LossWeight::kSquare, "square"}});
}

// The weight of each target of a sample with `targets` of them.
inline double TargetWeight(LossWeight kind, int64_t targets) {
  if (kind == LossWeight::kToken || targets == 0) return 1;
  const auto count = static_cast<double>(targets);
  return kind == LossWeight::kSample ? 1 / count : 1 / std::sqrt(count);
}

}  // namespace equipoise
