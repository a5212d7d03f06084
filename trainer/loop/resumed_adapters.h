#pragma once

#include "trainer/loop/run_context.h"
#include "trainer/loop/train_options.h"

namespace equipoise {

// Gives a run that goes on from a checkpoint the adapters that this has, where the same
// model.adapter meant other layers to the program that began the run (TakeAdaptersOf()). Faults of
// checkpoints and models are left to those who read them. Collective.
void TakeAdaptersOfStart(RunContext& context, const TrainOptions& options);

}  // namespace equipoise
