#pragma once

#include <vector>

#include "parallel/schedule/encoder_pipelines.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {

// A frozen encoder in the bubbles, a step ahead. Its features depend on no step before, so that a
// step may encode the pictures of the next one, in any bubble, behind the last backward too.
//
// In the schedule of a step with M micro-batches those of the next step have the numbers from M on:
// with M = 4, 0V5 encodes the second one of the next step. Nothing but the encoder runs for them,
// and the last stage of a copy of the encoder keeps what it has made of them. In the next step that
// stage's V takes it, in no time (WithTaken()), and feeds the language model as ever.

// The compute ops of a step whose features the step before has made: those of the schedule of a
// language model, and in front of each rank's the V of the last stage of copy owners[i] for each
// micro-batch i; none where owners[i] is negative. Throws ConfigError as AddEncoderStages() does.
// REQUIRES: a frozen encoder.
Schedule TakeFeatures(const Schedule& llm, const EncoderPipelines& encoder,
                      const std::vector<int>& owners);

// A step of TakeFeatures() or FillBubbles() with the encoder's passes on the next step's
// micro-batches, runs[i] of which have pictures, in its bubbles: each goes to the copy that is
// done with it first, first fit. The schedule is complete (passes.h); what the one given has of
// transfers and reductions is made anew. `costs`: of the ops of both steps' micro-batches. Equal
// arguments give equal schedules. REQUIRES: a frozen encoder.
Schedule PrefetchNext(const Schedule& step, const EncoderPipelines& encoder,
                      const std::vector<bool>& runs, const SimulationCosts& costs);

// By micro-batch of the next step the copy that encodes it in a schedule of PrefetchNext(), whose
// own micro-batches are the first `micro_batches`; -1: none.
std::vector<int> NextOwners(const Schedule& schedule, const EncoderPipelines& encoder,
                            int micro_batches);

// Costs with features of the first `taken` micro-batches made in the step before: their V take no
// time.
SimulationCosts WithTaken(const SimulationCosts& costs, int taken);

}  // namespace equipoise
