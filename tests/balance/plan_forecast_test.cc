#include "balance/search/plan_forecast.h"

#include <catch2/catch.hpp>

#include "balance/costs/stage_costs.h"
#include "models/families/presets.h"
#include "tests/models/load_of.h"

namespace equipoise {
namespace {

PlanRequest Request(int packs) {
  PlanRequest request;
  request.model = PresetConfig("internvl2-8b");
  ClusterConfig cluster;
  cluster.preset = "a100-80g";
  request.cluster = MakeCluster(cluster);
  request.ranks = 8;
  request.workload.steps = {std::vector<LayerLoad>(packs, LoadOf(request.model, 8, 4000))};
  request.workload.worst = LoadOf(request.model, 9, 4096);
  return request;
}

Plan FourStages(const PlanRequest& request) {
  PlanRequest pinned = request;
  pinned.pins.pipeline = 4;
  pinned.pins.tensor = 1;
  pinned.pins.schedule = "1f1b";
  return SearchPlans(pinned).plans.front().plan;
}

TEST_CASE("bubbles have their causes", "[plan_forecast][cpu]") {
  PlanRequest request = Request(16);
  const Plan plan = FourStages(request);
  REQUIRE(plan.data() == 2);
  // Equal micro-batches on 4 ranks, 8 each: 3 of 11 slots wait.
  const BubbleShares even = ForecastPlan(request, plan).bubbles;
  CHECK(even.uneven_micro_batches == Approx(0).margin(1e-9));
  CHECK(even.uneven_data_ranks == Approx(0).margin(1e-9));
  CHECK(even.fill_and_drain == Approx(3.0 / 11).margin(0.03));
  CHECK(even.uneven_stages > 0);
  CHECK(even.communication > 0);
  // Weight gradients fill the end.
  Plan halves = plan;
  halves.schedule = "zb_h1";
  const BubbleShares filled = ForecastPlan(request, halves).bubbles;
  CHECK(filled.uneven_micro_batches == Approx(0).margin(1e-9));
  CHECK(filled.fill_and_drain > 0);
  CHECK(filled.fill_and_drain < 0.6 * even.fill_and_drain);
  // Passes of the next step fill both ends: (S + 1) / 2 forwards are left of 3 (S - 1).
  halves.schedule = "pipedream_2bw";
  const PlanForecast delayed = ForecastPlan(request, halves);
  CHECK(delayed.bubbles.fill_and_drain < 0.4 * even.fill_and_drain);
  CHECK(delayed.step_s.p50 < ForecastPlan(request, plan).step_s.p50);
  // Rank 1 gets half the work.
  const LayerLoad heavy = LoadOf(request.model, 8, 4000), light = LoadOf(request.model, 4, 2000);
  for (size_t i = 1; i < 16; i += 2) request.workload.steps[0][i] = light;
  const BubbleShares dealt = ForecastPlan(request, plan).bubbles;
  CHECK(dealt.uneven_data_ranks > 0.1);
  CHECK(dealt.uneven_micro_batches == Approx(0).margin(1e-9));
  // Both ranks get heavy and light ones.
  for (size_t i = 0; i < 16; ++i) {
    request.workload.steps[0][i] = i % 4 < 2 ? heavy : light;
  }
  const BubbleShares varied = ForecastPlan(request, plan).bubbles;
  CHECK(varied.uneven_micro_batches > 0);
  CHECK(varied.uneven_data_ranks == Approx(0).margin(1e-9));
}

TEST_CASE("what passes wait for of shared-out or offloaded state is communication",
          "[plan_forecast][cpu]") {
  PlanRequest request = Request(16);
  request.cluster.intra.bytes_per_s /= 20;
  request.cluster.host.link_bytes_per_s /= 20;
  request.pins.pipeline = 1;
  request.pins.tensor = 1;
  request.pins.sharded = ShardedState::kParameters;
  Plan plan = SearchPlans(request).plans.front().plan;
  REQUIRE(plan.shards() == 8);
  for (const ShardedState offloaded : {ShardedState::kNone, ShardedState::kGradients}) {
    INFO(ZeroStage(offloaded));
    plan.offloaded = offloaded;
    const BubbleShares shares = ForecastPlan(request, plan).bubbles;
    CHECK(shares.fill_and_drain == Approx(0).margin(1e-6));
    CHECK(shares.uneven_stages == Approx(0).margin(1e-6));
    CHECK(shares.communication > 0.05);
  }
}

TEST_CASE("sums that end a step are communication", "[plan_forecast][cpu]") {
  PlanRequest request = Request(16);
  ClusterConfig cluster;
  cluster.preset = "a100-80g";
  cluster.nodes = 2;
  cluster.gpus_per_node = 4;
  request.cluster = MakeCluster(cluster);
  request.cluster.inter.bytes_per_s /= 20;
  request.pins.pipeline = 1;
  request.pins.tensor = 1;
  request.pins.sharded = ShardedState::kOptimizer;
  Plan plan = SearchPlans(request).plans.front().plan;
  plan.zero_ranks = 4;  // the nodes sum their shards when all backwards are over
  REQUIRE(plan.shards() == 4);
  const CostModel costs(request.model, request.cluster, request.CostOptions(plan));
  const double sum_s = SumCopiesSeconds(costs, plan, request.cluster, 0);
  const PlanForecast forecast = ForecastPlan(request, plan);
  REQUIRE(sum_s > 0.1 * forecast.step_s.p50);
  CHECK(forecast.bubbles.communication * forecast.step_s.p50 > 0.95 * sum_s);
  CHECK(forecast.bubbles.fill_and_drain == Approx(0).margin(1e-6));
}

TEST_CASE("shares add up to what the ranks wait", "[plan_forecast][cpu]") {
  const PlanRequest request = Request(16);
  const Plan plan = FourStages(request);
  const PlanForecast forecast = ForecastPlan(request, plan);
  double busy = 0;
  for (const StageForecast& stage : forecast.stages) {
    busy += 8 * (stage.forward_s + stage.backward_s);
  }
  // The optimizer's time is busy too, and short.
  const double waits = 1 - busy / 4 / forecast.step_s.p50;
  CHECK(forecast.bubbles.total() <= waits);
  CHECK(forecast.bubbles.total() == Approx(waits).margin(0.05));
}

TEST_CASE("percentiles widen with the error band and the steps", "[plan_forecast][cpu]") {
  PlanRequest request = Request(16);
  const Plan plan = FourStages(request);
  const PlanForecast one = ForecastPlan(request, plan);
  CHECK(one.step_s.p90 - one.step_s.p50 == Approx(1.2816 * one.error_band * one.step_s.p50));
  CHECK(one.step_s.p50 - one.step_s.p10 == Approx(one.step_s.p90 - one.step_s.p50));
  request.workload.steps.push_back(std::vector<LayerLoad>(16, LoadOf(request.model, 2, 1000)));
  const PlanForecast two = ForecastPlan(request, plan);
  CHECK(two.step_s.p90 - two.step_s.p50 > one.step_s.p90 - one.step_s.p50);
  // In the middle of the two.
  request.workload.steps.erase(request.workload.steps.begin());
  const PlanForecast other = ForecastPlan(request, plan);
  CHECK(two.step_s.p50 == Approx((one.step_s.p50 + other.step_s.p50) / 2));
}

TEST_CASE("rates follow from the step", "[plan_forecast][cpu]") {
  PlanRequest request = Request(16);
  const Plan plan = FourStages(request);
  const PlanForecast forecast = ForecastPlan(request, plan);
  CHECK(forecast.tokens_per_s == Approx(16 * 4000 / forecast.step_s.p50));
  CHECK(forecast.packs_per_s == Approx(16 / forecast.step_s.p50));
  CHECK(forecast.mfu > 0.2);
  CHECK(forecast.mfu < request.cluster.gemm_efficiency);
  CHECK(forecast.communication_share > 0);
  CHECK(forecast.communication_share < 0.5);
  PlanRequest split = request;
  split.pins.tensor = 8;  // an exchange in every half of a block
  CHECK(ForecastPlan(split, SearchPlans(split).plans.front().plan).communication_share > 0.1);
  request.frozen = {"vision", "projector"};  // less to compute, less counted
  CHECK(ForecastPlan(request, plan).step_s.p50 < forecast.step_s.p50);
}

TEST_CASE("model FLOPs are those of what is trained", "[plan_forecast][cpu]") {
  const PlanRequest request = Request(1);
  const LayerLoad& load = request.workload.worst;
  const auto flops = [&](const ModelConfig& model, const std::vector<std::string>& frozen) {
    CostModel::Options options;
    options.frozen = frozen;
    return ModelFlops(CostModel(model, request.cluster, options), load);
  };
  double forward = 0, encoder = 0;
  for (const LayerSpec& layer : LayerSpecs(request.model)) {
    forward += layer.ForwardFlops(load);
    if (layer.component != Component::kLanguageModel) encoder += layer.ForwardFlops(load);
  }
  CHECK(flops(request.model, {}) == Approx(3 * forward));
  // No gradient of a frozen encoder is computed.
  CHECK(flops(request.model, {"vision", "projector"}) == Approx(3 * forward - 2 * encoder));
  // Through a frozen language model gradients flow, in attention as always.
  const double through = flops(request.model, {"llm"});
  CHECK(through > 3 * encoder + 2 * (forward - encoder));
  CHECK(through < 3 * forward);
  // Adapters have a few weights; those under them have no gradients.
  ModelConfig adapted = request.model;
  adapted.lora.targets = {"all-linear"};
  CHECK(flops(adapted, {}) > 2 * forward);
  CHECK(flops(adapted, {}) < 2.4 * forward);
}

}  // namespace
}  // namespace equipoise
