#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "configs/base/enum_names.h"

namespace equipoise {

// Recomputation (activation checkpointing) of a layer: which of its activations are computed again
// in backward in place of being kept. kAttention and kMlp are the halves of a transformer block, of
// which only the input is kept. kOffload: all of a block's are kept, in host memory. Layers without
// halves keep everything under these three.
enum class Recompute : uint8_t { kNone, kAttention, kMlp, kFull, kOffload };
constexpr size_t kRecomputeKinds = 5;

constexpr auto NamesOf(Recompute) {
  return std::to_array<EnumName<Recompute>>({{Recompute::kNone, "none"},
                                             {Recompute::kFull, "full"},
                                             {Recompute::kAttention, "attention"},
                                             {Recompute::kMlp, "mlp"},
                                             {Recompute::kOffload, "offload"}});
}

}  // namespace equipoise
