#include "trainer/loop/step_forecast.h"

#include <catch2/catch.hpp>
#include <vector>

#include "balance/search/plan_fit.h"
#include "models/families/families.h"
#include "models/families/presets.h"
#include "models/spec/layer_spec.h"
#include "tests/models/load_of.h"

namespace equipoise {
namespace {

// Of a step of four micro-batches on this machine's CPUs.
double StepSeconds(const Plan& plan, const ClusterConfig& cluster) {
  RunConfig config;
  config.cluster = cluster;
  PlanRequest request;
  request.model = PresetConfig("quickstart");
  const std::vector<LayerLoad> loads(4, LoadOf(request.model, 8, 256));
  const StepForecast forecast(config, request.model, plan, {"", "", "fp32", 1});
  const Schedule schedule = ComputeSchedule(request, plan, loads, forecast.Costs(loads));
  return forecast.Seconds(schedule, loads, 0).step_s;
}

Plan TwoRanks(int data, int pipeline, int tensor) {
  Plan plan = InlinePlan({data, pipeline, tensor});
  plan.schedule = "1f1b";
  const int layers = static_cast<int>(LayerSpecs(PresetConfig("quickstart")).size());
  plan.stage_begins = {0, layers};
  if (pipeline == 2) plan.stage_begins = {0, layers / 2, layers};
  return plan;
}

TEST_CASE("ranks of one machine are not told apart by links between machines",
          "[step_forecast][cpu]") {
  for (const Plan& plan : {TwoRanks(2, 1, 1), TwoRanks(1, 2, 1), TwoRanks(1, 1, 2)}) {
    INFO("data " << plan.data() << ", pipeline " << plan.pipeline() << ", tensor "
                 << plan.tensor());
    ClusterConfig fast, slow_between, slow_within;
    slow_between.inter_gb_s = 1e-3;
    slow_within.intra_gb_s = 1e-3;
    CHECK(StepSeconds(plan, slow_between) == StepSeconds(plan, fast));
    CHECK(StepSeconds(plan, slow_within) > StepSeconds(plan, fast));
  }
}

}  // namespace
}  // namespace equipoise
