#pragma once

#include <array>
#include <cstdint>

#include "configs/base/enum_names.h"

namespace equipoise {

// Recomputation (activation checkpointing) of a layer: which of its activations are computed again
// in backward in place of being kept. kAttention and kMlp are the halves of a transformer block, of
// which only the input is kept; layers without halves then keep everything.
enum class Recompute : uint8_t { kNone, kAttention, kMlp, kFull };

constexpr auto NamesOf(Recompute) {
  return std::to_array<EnumName<Recompute>>({{Recompute::kNone, "none"},
                                             {Recompute::kFull, "full"},
                                             {Recompute::kAttention, "attention"},
                                             {Recompute::kMlp, "mlp"}});
}

}  // namespace equipoise
