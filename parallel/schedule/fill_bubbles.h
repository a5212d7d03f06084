#pragma once

#include "parallel/encoder_placement.h"
#include "parallel/schedule/encoder_pipelines.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {

// Lays the passes of an encoder with a plan of its own into the bubbles of the schedule of a
// language model, whatever has built that: its ops keep their order on every rank, its stages have
// numbers higher by those of the encoder (encoder_pipelines.h). The schedule returned is complete
// (passes.h): transfers in one global order, so that none deadlocks though every transfer blocks,
// and reductions; what the schedule given has of them is left out and made anew. In simulated time
// it is never longer than with kThreePhase, which stands where a placement would be. Equal
// arguments give equal schedules.
//
// `costs` are those of the schedule returned. Throws ConfigError as AddEncoderStages() does, and
// when the schedule deadlocks. REQUIRES: FillsBubbles(placement).
Schedule FillBubbles(const Schedule& llm, const EncoderPipelines& encoder,
                     const SimulationCosts& costs, EncoderPlacement placement);

// FillBubbles() without transfers, for the simulator, which times them by itself.
Schedule FillBubblesToSimulate(const Schedule& llm, const EncoderPipelines& encoder,
                               const SimulationCosts& costs, EncoderPlacement placement);

}  // namespace equipoise
