#pragma once

#include <array>
#include <cstdint>

#include "configs/base/enum_names.h"

namespace equipoise {

// Values of `balance.group`: how samples form the micro-batches of a step.
enum class GroupMethod : uint8_t {
  kRandom,         // micro_batch samples at random
  kLengthGrouped,  // micro_batch samples of similar length
  kPacked,         // filled to Q_t
  kKnapsack,       // filled to Q_t and Q_v, even in tokens
  kIsf,            // OmniBal's iterative sampling and filtering
  kIsfPlus,        // full of patches, even in tokens, neighbours in one row
};

constexpr auto NamesOf(GroupMethod) {
  return std::to_array<EnumName<GroupMethod>>({{GroupMethod::kRandom, "random"},
                                               {GroupMethod::kLengthGrouped, "length_grouped"},
                                               {GroupMethod::kPacked, "packed"},
                                               {GroupMethod::kKnapsack, "knapsack"},
                                               {GroupMethod::kIsf, "isf"},
                                               {GroupMethod::kIsfPlus, "isf+"}});
}

// Whether micro-batches have a fixed number of samples instead of limits.
constexpr bool HasFixedSamples(GroupMethod method) {
  return method == GroupMethod::kRandom || method == GroupMethod::kLengthGrouped;
}

// Whether no micro-batch has more patches or tokens than the limits. `packed` bounds tokens alone.
constexpr bool KeepsBothLimits(GroupMethod method) {
  return !HasFixedSamples(method) && method != GroupMethod::kPacked;
}

}  // namespace equipoise
