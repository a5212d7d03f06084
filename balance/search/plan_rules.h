#pragma once

#include <array>
#include <cstdint>

#include "configs/base/enum_names.h"
#include "parallel/recompute.h"

namespace equipoise {

// Values of `balance.partition`: how layers are cut into stages.
enum class PartitionRule : uint8_t {
  kBalanced,    // bmp: by predicted seconds, with candidates ranked by the simulator
  kFlops,       // least maximum of FLOPs over stages
  kParameters,  // least maximum of parameters, as in trainers without a cost model
};

constexpr auto NamesOf(PartitionRule) {
  return std::to_array<EnumName<PartitionRule>>({{PartitionRule::kBalanced, "bmp"},
                                                 {PartitionRule::kFlops, "flops"},
                                                 {PartitionRule::kParameters, "parameters"}});
}

// Values of `balance.recompute`: which layers are recomputed in backward.
enum class RecomputeRule : uint8_t {
  kAdaptive,  // bar: on each rank as little as fits its memory
  kNone,
  kFull,
  kAttention,
  kMlp,
  kElementwise,
  kOffload,
  kFullOffload,
};

constexpr auto NamesOf(RecomputeRule) {
  return std::to_array<EnumName<RecomputeRule>>({{RecomputeRule::kAdaptive, "bar"},
                                                 {RecomputeRule::kNone, "none"},
                                                 {RecomputeRule::kFull, "full"},
                                                 {RecomputeRule::kAttention, "attention"},
                                                 {RecomputeRule::kMlp, "mlp"},
                                                 {RecomputeRule::kElementwise, "elementwise"},
                                                 {RecomputeRule::kOffload, "offload"},
                                                 {RecomputeRule::kFullOffload, "full_offload"}});
}

// The recomputation of every layer under a rule; kNone under kAdaptive, which chooses by layer.
constexpr Recompute UniformRecompute(RecomputeRule rule) {
  switch (rule) {
    case RecomputeRule::kFull:
      return Recompute::kFull;
    case RecomputeRule::kAttention:
      return Recompute::kAttention;
    case RecomputeRule::kMlp:
      return Recompute::kMlp;
    case RecomputeRule::kElementwise:
      return Recompute::kElementwise;
    case RecomputeRule::kOffload:
      return Recompute::kOffload;
    case RecomputeRule::kFullOffload:
      return Recompute::kFullOffload;
    case RecomputeRule::kAdaptive:
    case RecomputeRule::kNone:
      break;
  }
  return Recompute::kNone;
}

}  // namespace equipoise
