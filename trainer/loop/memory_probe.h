#pragma once

#include "trainer/loop/replica.h"
#include "trainer/loop/run_context.h"
#include "trainer/loop/run_data.h"

namespace equipoise {

// Runs a step before the first one, each of its micro-batches the worst of the epoch, so that as
// many are in flight as in any step; discards its gradients, and logs the peak memory beside the
// forecast. Changes nothing else: a run that does not fit ends at once. Collective. REQUIRES:
// weights.
void ProbeMemory(RunContext& context, const RunData& data, Replica& replica);

}  // namespace equipoise
