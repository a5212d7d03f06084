#pragma once

#include "trainer/loop/replica.h"
#include "trainer/loop/run_context.h"
#include "trainer/loop/run_data.h"

namespace equipoise {

// Runs a step (two where passes run ahead) before the first one in which every micro-batch is the
// epoch's worst, so that as many are in flight as in any step, and logs its peak memory and the
// forecast: a run that does not fit ends at once. Its gradients are discarded; nothing else
// changes. Where run.probe does not ask for it, and the forecast is far below a rank's memory, it
// is left out. Collective. REQUIRES: weights.
void ProbeMemory(RunContext& context, const RunData& data, Replica& replica);

}  // namespace equipoise
