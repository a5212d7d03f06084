#pragma once

#include <cstdint>
#include <vector>

#include "balance/costs/cost_model.h"
#include "parallel/plan.h"
#include "parallel/schedule/schedule.h"

namespace equipoise {

// The peak memory of one rank in a step, in bytes, by what it is for.
struct MemoryForecast {
  int64_t parameters = 0;  // in the precision of the computation, frozen ones too
  // Of trained parameters alone:
  int64_t gradients = 0;  // fp32
  int64_t optimizer = 0;  // AdamW's moments, and what there is of masters beside the parameters
  // At the worst moment of the step:
  int64_t activations = 0;    // kept for backward, or as features that are not taken yet
  int64_t temporary = 0;      // of the layer that runs: recomputed activations, logits, gradients
  int64_t communication = 0;  // buffers of transfers between stages
  int64_t reserve = 0;        // devices: fragmentation and context
  // Not of the device: of the host, where state (Plan::offloaded) or activations lie there.
  int64_t host = 0;

  int64_t total() const {
    return parameters + gradients + optimizer + activations + temporary + communication + reserve;
  }
};

// The memory of a pipeline rank (and of each of its data and tensor ranks; of the lanes of an
// encoder the fullest) that runs its list of a completed schedule, with activations as the stages
// keep and free them (models/stages/stage.h). REQUIRES: schedule is the plan's; micro_batches has
// its loads.
MemoryForecast ForecastMemory(const CostModel& costs, const Plan& plan, const Schedule& schedule,
                              const std::vector<LayerLoad>& micro_batches, int pipeline_rank);

// The host memory that the fullest node needs for offloaded state. `by_pipeline_rank`: the
// forecasts of the plan.
int64_t HostBytesOfNode(const Cluster& cluster, const Plan& plan,
                        const std::vector<MemoryForecast>& by_pipeline_rank);

}  // namespace equipoise
