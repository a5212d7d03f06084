#pragma once

#include "balance/search/plan_request.h"
#include "balance/search/plan_search.h"
#include "trainer/planner/plan_workload.h"
#include "trainer/planner/sample_costs.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

enum class MeshChoice {
  kAll,
  // On this machine's CPUs (cluster.preset: local), where the mesh is free, all ranks are data
  // ranks if a replica fits. They share one memory, so that splitting a model saves little there,
  // and tensor ranks exchange at every layer.
  kFewestAxesFirst,
};

// A workload, and what the search finds for it.
struct FittedRun {
  PlannedRun planned;
  PlanRequest request;
  PlanSearchResult search;
  bool fits() const { return !search.plans.empty(); }
};

// The plans of a workload. Where nothing fits, those with the largest of LowerLimits() with which
// something does; with the least of them where nothing does even so. Memory grows with the limits,
// so they are found by halving. With balance.limits: search, where neither limit is given, packs of
// half, a quarter or twice the size of the first ones, with the inverse of train.global_batch, are
// taken where they compute clearly more tokens a second and a step keeps its samples. `first`: what
// the configuration's own limits make of the samples.
FittedRun FitRun(const SampleCosts& costs, const RunConfig& config, const PlannedRun& first,
                 const PlanRequest& request, MeshChoice meshes);

}  // namespace equipoise
