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

// Where a run is to compute.
struct PlanTarget {
  int ranks = 0;  // 0: the cluster's devices
  // Precision of the ranks; absent: by train.precision, for the cluster.
  std::optional<Precision> precision = std::nullopt;
  int trials = 0;  // plans that will be tried: so many are kept, of all meshes
};

// The request to the search for a configuration: model, cluster, workload, and what `parallel` and
// `balance` pin. Warns where cluster.profile is used though it does not fit. Throws ConfigError for
// pins that are wrong by themselves, DataError for a profile that cannot be read.
PlanRequest PlanRequestOf(const RunConfig& config, const ModelConfig& model,
                          const Workload& workload, const PlanTarget& target);

// May put the plans that were found into another order, before the first is told about.
using OrderPlans = std::function<void(PlanReport&)>;

// The plan of a configuration with all that there is to tell about it; with a schedule from a file
// the one plan that training takes, whether or not it fits. LibTorch-free; no device, no weights.
// Throws ConfigError, DataError (also where the samples do not fill one step), and UserError with
// kNoPlan where nothing fits.
PlanReport PlanRun(const RunConfig& config, const PlanTarget& target, const OrderPlans& order = {});

// The plan that a run trains with: PlanRun()'s for samples of these costs. With a schedule from a
// file, which is not searched, MakePlan()'s. Throws as PlanRun() does.
struct TrainingPlan {
  Plan plan;
  PlanPrediction prediction;
};
TrainingPlan PlanTraining(const RunConfig& config, const ModelConfig& model,
                          const SampleCosts& costs, const PlanTarget& target);

}  // namespace equipoise
