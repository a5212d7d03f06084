#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "configs/base/enum_names.h"

namespace equipoise {

// Recomputation (activation checkpointing) of a layer: which of its activations are computed again
// in backward in place of being kept. kAttention and kMlp are the halves of a transformer block, of
// which only the input is kept. Under kOffload a block keeps all of them, in host memory; under
// kFullOffload its input alone, in host memory. Layers without halves are treated as under kNone,
// and as under kFull in the last case.
enum class Recompute : uint8_t { kNone, kAttention, kMlp, kFull, kOffload, kFullOffload };
constexpr size_t kRecomputeKinds = 6;

constexpr auto NamesOf(Recompute) {
  return std::to_array<EnumName<Recompute>>({{Recompute::kNone, "none"},
                                             {Recompute::kFull, "full"},
                                             {Recompute::kAttention, "attention"},
                                             {Recompute::kMlp, "mlp"},
                                             {Recompute::kOffload, "offload"},
                                             {Recompute::kFullOffload, "full_offload"}});
}

}  // namespace equipoise
