#pragma once

#include <array>
#include <cstdint>

#include "configs/base/enum_names.h"

namespace equipoise {

// Where the image encoder (with the connector) lies among the layers of the language model.
enum class EncoderPlacement : uint8_t {
  // Its layers are the first of those that all pipeline ranks share out.
  kInline,
  // It has the first pipeline ranks to itself.
  kDisaggregated,
  // The following have copies of the encoder on the ranks of the language model, and lay its passes
  // among those of the language model (FillBubbles()).
  //
  // Micro-batches dealt round robin to the copies; on each rank all forwards of the encoder, then
  // the language model, then all backwards of the encoder.
  kThreePhase,
  // The rules of Kimi K3's DEP: the first micro-batches in front, one to each copy; the others
  // where the bubble before a rank's first op has room, the least used one first; backwards after
  // the rank's last op. Unlike there, forward and backward stay on one rank.
  kDep,
  // Optimus (arXiv 2408.03505), coarse: as early as each dependency point asks, in the bubble
  // before a rank's first op and in that after its last.
  kOptimusCoarse,
  // Optimus, fine: in the bubbles between the ops too. An op is not divided: the stages of a copy
  // say how small it is.
  kOptimus,
};

constexpr auto NamesOf(EncoderPlacement) {
  return std::to_array<EnumName<EncoderPlacement>>(
      {{EncoderPlacement::kInline, "inline"},
       {EncoderPlacement::kDisaggregated, "disaggregated"},
       {EncoderPlacement::kThreePhase, "three_phase"},
       {EncoderPlacement::kDep, "dep"},
       {EncoderPlacement::kOptimusCoarse, "optimus_coarse"},
       {EncoderPlacement::kOptimus, "optimus"}});
}

// Those with copies of the encoder in the bubbles of the language model.
constexpr std::array<EncoderPlacement, 4> kBubblePlacements = {
    EncoderPlacement::kThreePhase, EncoderPlacement::kDep, EncoderPlacement::kOptimusCoarse,
    EncoderPlacement::kOptimus};
constexpr bool FillsBubbles(EncoderPlacement placement) {
  return placement >= EncoderPlacement::kThreePhase;
}

}  // namespace equipoise
