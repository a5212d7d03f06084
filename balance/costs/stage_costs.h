#pragma once

#include <vector>

#include "balance/costs/cost_model.h"
#include "balance/costs/layer_cost_table.h"
#include "parallel/plan.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {

// Costs by which the simulator runs one step of a plan: seconds of every op (recomputation, REDUCE
// and OPT too), bytes and links of transfers, kept bytes under the plan's recomputation. Holds
// tables of its own; refers to none of the arguments. REQUIRES: plan.stage_begins fits the model,
// costs.Fits(plan).
SimulationCosts StageCosts(const CostModel& costs, const Plan& plan, const Cluster& cluster,
                           const std::vector<LayerLoad>& micro_batches);
// StageCosts() with micro-batch m being load number loads[m] of the table.
SimulationCosts StageCosts(const LayerCostTable& table, const Plan& plan, const Cluster& cluster,
                           const std::vector<int>& loads);

// Bytes that a stage keeps beside its layers: its output, where the last layer is not wholly
// computed again; in the last stage the weight gradient that the loss has made, where its head's
// weight is tied to an embedding in the same stage.
int64_t KeptAtEndBytes(const CostModel& costs, const Plan& plan, int stage, const LayerLoad& load);

// Bytes that a stage keeps from the first half of a backward to the second: of each linear layer
// the input and the gradient of the output, which for a block are about as many as it keeps without
// recomputation; nothing of embedding and head, whose gradients are complete then.
int64_t DeferredBytes(const CostModel& costs, const Plan& plan, int stage, const LayerLoad& load);

inline Recompute RecomputeOf(const Plan& plan, int layer) {
  return plan.recompute.empty() ? Recompute::kNone : plan.recompute[static_cast<size_t>(layer)];
}

// Parameters of a stage on one tensor rank: trained ones, frozen ones, and the bytes of all. The
// head's copy of a tied weight is counted where the embedding is in another stage.
struct StageParameters {
  int64_t trained = 0, frozen = 0, bytes = 0;
  int64_t shared_bytes = 0;  // of `bytes`, those that ZeRO 3 shares out: what is packed it does not
};
StageParameters ParametersOfStage(const CostModel& costs, const Plan& plan, int stage);

// Bytes that a layer's pass takes of the weights that ZeRO 3 shares out, and the parameters whose
// gradients its backward makes whole: CostModel's SharedBytes() and TrainedParameters(), and for
// the head a weight that is tied to the embedding, whose gradient is the embedding's where both are
// in one stage.
int64_t PassSharedBytes(const CostModel& costs, int layer);
int64_t PassTrainedParameters(const CostModel& costs, const Plan& plan, int layer);

// Seconds that a stage's gradients take to be summed over the data ranks (ZeRO 1: to their shards),
// in fp32, beyond the last backward, which takes `backward_s` and beside which most of it may run.
// What waits for the end of all backwards is in SumCopiesSeconds().
double ReduceSeconds(const CostModel& costs, const Plan& plan, const Cluster& cluster, int stage,
                     double backward_s = 0);

// Seconds of the sums that end a step on a pipeline rank, with nothing beside them: the copies of
// an encoder in the bubbles add their gradients, and data ranks those sums; groups that have a copy
// of the state each (hierarchical ZeRO) add their shards, but for ZeRO 2 and 3 on the device.
double SumCopiesSeconds(const CostModel& costs, const Plan& plan, const Cluster& cluster,
                        int pipeline_rank);

// Seconds in which the embedding and the head's copy of it add their gradients, where they lie on
// different pipeline ranks, of which this is one; with ZeRO 2 and 3 of slices.
double SumTiedSeconds(const CostModel& costs, const Plan& plan, const Cluster& cluster,
                      int pipeline_rank);

// Copies of an encoder in the bubbles that share out its optimizer state, as data ranks do (ZeRO
// 1).
int StateCopies(const Plan& plan);

// Seconds of AdamW on a pipeline rank, and of gathering what other ranks have updated: on GPUs what
// the next forward does not hide of that.
double OptimizerSeconds(const CostModel& costs, const Plan& plan, const Cluster& cluster,
                        int pipeline_rank);

}  // namespace equipoise
