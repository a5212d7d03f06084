#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "configs/base/enum_names.h"

namespace equipoise {

// Recomputation (activation checkpointing) of a layer: which of its activations are computed again
// in backward in place of being kept. kAttention and kMlp are the halves of a transformer block, of
// which only the input is kept. Under kElementwise a block keeps all but the results of its norms
// and of its activation function, which a pass over what is kept makes again, without a product (as
// `--recompute-modules layernorm mlp_act` of Megatron-LM). Under kOffload a block keeps all of
// them, in host memory; under kFullOffload its input alone, in host memory. Layers without halves
// are treated as under kNone, and as under kFull in the last case.
enum class Recompute : uint8_t {
  kNone,
  kAttention,
  kMlp,
  kFull,
  kOffload,
  kFullOffload,
  kElementwise
};
constexpr size_t kRecomputeKinds = 7;

constexpr auto NamesOf(Recompute) {
  return std::to_array<EnumName<Recompute>>({{Recompute::kNone, "none"},
                                             {Recompute::kFull, "full"},
                                             {Recompute::kAttention, "attention"},
                                             {Recompute::kMlp, "mlp"},
                                             {Recompute::kElementwise, "elementwise"},
                                             {Recompute::kOffload, "offload"},
                                             {Recompute::kFullOffload, "full_offload"}});
}

}  // namespace equipoise
