#pragma once

#include "trainer/checkpoint/checkpoint_index.h"
#include "trainer/loop/replica.h"
#include "trainer/loop/run_context.h"
#include "trainer/loop/run_data.h"
#include "trainer/outputs/report_facts.h"
#include "trainer/planner/plan_yaml.h"

namespace equipoise {

// Facts for the report of a run at `state`; the caller adds `first_step`, and `predicted_step_s`
// where the speed of the devices is known. Collective; ranks are listed on rank 0 alone.
RunSummary SummarizeRun(const RunContext& context, const RunData& data, const Replica& replica,
                        const PlanPrediction& prediction, const TrainState& state);

}  // namespace equipoise
