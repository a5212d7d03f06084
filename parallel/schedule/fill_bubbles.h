#pragma once

#include <array>
#include <cstdint>

#include "configs/base/enum_names.h"
#include "parallel/schedule/encoder_pipelines.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {

// Where the encoder's passes lie among those of the language model, on the same ranks.
enum class EncoderPlacement : uint8_t {
  // Micro-batches dealt round robin to the encoder pipelines; on each rank all forwards of the
  // encoder, then the language model, then all backwards of the encoder.
  kThreePhase,
  // The rules of Kimi K3's DEP: the first micro-batches in front, one to each encoder pipeline; the
  // others where the bubble before a rank's first op has room, the least used one first; backwards
  // after the rank's last op. Unlike there, forward and backward stay on one rank.
  kDep,
  // Optimus, coarse: as early as each dependency point asks, in the bubble before a rank's first op
  // and in that after its last.
  kCoarse,
  // Optimus, fine: in the bubbles between the ops too. An op is not divided: EncoderPipelines::
  // pieces says how small it is.
  kFine,
};

constexpr auto NamesOf(EncoderPlacement) {
  return std::to_array<EnumName<EncoderPlacement>>({{EncoderPlacement::kThreePhase, "three_phase"},
                                                    {EncoderPlacement::kDep, "dep"},
                                                    {EncoderPlacement::kCoarse, "coarse"},
                                                    {EncoderPlacement::kFine, "fine"}});
}

// Lays the passes of an encoder with a plan of its own into the bubbles of the schedule of a
// language model, whatever has built that: its ops keep their order on every rank, its stages have
// numbers higher by those of the encoder (encoder_pipelines.h). The schedule returned is complete
// (passes.h): transfers in one global order, so that none deadlocks though every transfer blocks,
// and reductions; what the schedule given has of them is left out and made anew. In simulated time
// it is never longer than with kThreePhase, which stands where a placement would be. Equal
// arguments give equal schedules.
//
// `costs` are those of the schedule returned. Throws ConfigError as AddEncoderStages() does, and
// when the schedule deadlocks.
Schedule FillBubbles(const Schedule& llm, const EncoderPipelines& encoder,
                     const SimulationCosts& costs, EncoderPlacement placement);

}  // namespace equipoise
