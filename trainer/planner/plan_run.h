#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "models/spec/model_config.h"
#include "trainer/planner/plan_report.h"
#include "trainer/planner/plan_yaml.h"
#include "trainer/planner/sample_costs.h"
#include "trainer/settings/precision.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// The ranks that a plan is made for.
struct PlanTarget {
  int ranks = 0;  // 0: one per device of the cluster
  // Precision of the ranks; absent: from train.precision, for the cluster.
  std::optional<Precision> precision = std::nullopt;
  int trials = 0;  // plans that will be tried: at least as many are kept, from all meshes
  // Whether the ranks are there already: a goal that they miss is a warning then.
  bool started = false;
  int threads = 1;  // of the search
  int islands = 1;  // that each have so many ranks, of a configuration that is OfIsland()
};

// The request of the search for a configuration: model, cluster, workload, and the choices that
// `parallel` and `balance` pin. Warns when a cluster.profile of another device is used. Throws
// ConfigError for invalid pins, DataError for a profile that cannot be read.
PlanRequest PlanRequestOf(const RunConfig& config, const ModelConfig& model,
                          const Workload& workload, const PlanTarget& target);

// Reorders the plans that were found, before the report about the first is made.
using OrderPlans = std::function<void(PlanReport&)>;

// The plan of a configuration and its full report. With a schedule from a file, the single plan of
// MakePlan(), whether or not it fits the memory. LibTorch-free; needs no device and no weights.
// By the section `goal` among several where it says so (goal_search.h). Throws ConfigError,
// DataError (also when the samples do not fill one step), and UserError with kNoPlan when no plan
// fits, or keeps the goal.
PlanReport PlanRun(const RunConfig& config, const PlanTarget& target, const OrderPlans& order = {});

// The plan with which a run trains: that of PlanRun() for samples of these costs, or of MakePlan()
// with a schedule from a file, which is not searched. Throws as PlanRun() does.
struct TrainingPlan {
  Plan plan;
  PlanPrediction prediction;
};
TrainingPlan PlanTraining(const RunConfig& config, const ModelConfig& model,
                          const SampleCosts& costs, const PlanTarget& target);

}  // namespace equipoise
