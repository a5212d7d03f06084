#pragma once

#include "balance/search/plan_request.h"
#include "balance/search/plan_search.h"
#include "trainer/planner/plan_workload.h"
#include "trainer/planner/sample_costs.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// The meshes among which plans are searched.
enum class MeshChoice {
  kAll,
  // With preset `local` and no pinned degree, all ranks are data-parallel if a replica fits; other
  // meshes are searched only if not, or where the schedule is for several pipeline ranks. The
  // CPU ranks share one memory, so that splitting a model saves little, and tensor-parallel ranks
  // communicate in every layer.
  kFewestAxesFirst,
};

// A workload, and the result of the search for it.
struct FittedRun {
  PlannedRun planned;
  PlanRequest request;
  PlanSearchResult search;
  bool fits() const { return !search.plans.empty(); }
};

// Searches the plans of a workload. If none fits the memory, the limits on packs are lowered to the
// largest of LowerLimits() with which a plan fits, found by binary search as memory grows with the
// limits; if none fits with the least limits either, the result of these is returned. With
// balance.limits: search and no given limit, packs of half, a quarter and twice the size are tried
// too, with train.global_batch scaled inversely so that a step keeps its samples, and taken where
// throughput in tokens per second is clearly higher. Where still none fits and parallel.context is
// absent, as few context ranks as possible share out the rows; where one does, but a step has fewer
// packs than there are ranks, those within a node with the shortest steps, if clearly shorter.
// `first`: the workload with the configuration's own limits.
FittedRun FitRun(const SampleCosts& costs, const RunConfig& config, const PlannedRun& first,
                 const PlanRequest& request, MeshChoice meshes);

// FitRun() with the packs as they are.
FittedRun SearchRun(const SampleCosts& costs, const RunConfig& config, const PlannedRun& planned,
                    const PlanRequest& request, MeshChoice meshes);

}  // namespace equipoise
