// The search for a plan where the encoder has ranks of its own, or lies in the bubbles.
#include <catch2/catch.hpp>
#include <set>
#include <utility>

#include "balance/costs/stage_costs.h"
#include "balance/search/plan_fit.h"
#include "balance/search/plan_forecast.h"
#include "balance/search/plan_search.h"
#include "models/families/modules.h"
#include "models/stages/plan_schedule.h"
#include "parallel/schedule/prefetch.h"
#include "tests/balance/search_request.h"

namespace equipoise {
namespace {

using testing::CheckStages;
using testing::Request;

TEST_CASE("an encoder with ranks of its own stays apart", "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-26b", 4, 32);
  request.pins.pipeline = 8;
  request.pins.tensor = 1;
  request.pins.encoder = {EncoderPlacement::kDisaggregated, 2, {}};
  request.keep = 1000;  // nothing is left out
  const int encoder = NumEncoderLayers(request.model);
  const PlanSearchResult result = SearchPlans(request);
  std::set<int> chunks;
  for (const ScoredPlan& each : result.plans) {
    CheckStages(each.plan, 97);
    CHECK(each.plan.encoder_ranks() == 2);
    CHECK(each.plan.stage_begins[2] == encoder);
    CHECK(each.memory.size() == 8);
    chunks.insert(each.plan.chunks());
    const PlanFitter fitter(request, Plan());
    CHECK(fitter.LowerBound(each.plan) <= each.step_s);
    CHECK(fitter.StepSecondsBound(each.plan) <= each.step_s * (1 + 1e-12));
    const PlanForecast forecast = ForecastPlan(request, each.plan);
    CHECK(forecast.stages.front().end_layer < encoder);
    CHECK(forecast.bubbles.total() < 1);
    CHECK(forecast.bubbles.fill_and_drain > 0);
  }
  CHECK(chunks == std::set<int>{1, 2, 3, 4});
  request.pins.stage_begins = {0, 20, encoder, 50, 60, 70, 80, 90, 97};
  CHECK(SearchPlans(request).plans.front().plan.stage_begins == request.pins.stage_begins);
  request.partition = PartitionRule::kFlops;
  request.pins.stage_begins.clear();
  CHECK(SearchPlans(request).plans.front().plan.stage_begins[2] == encoder);
}

TEST_CASE("an encoder in the bubbles: bounds, memory, forecast", "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-8b", 1, 16);
  request.pins.pipeline = 4;
  request.pins.tensor = 1;
  request.pins.encoder.placement =
      GENERATE(EncoderPlacement::kThreePhase, EncoderPlacement::kOptimus);
  request.keep = 1000;  // nothing is left out
  const auto layers = static_cast<int>(LayerSpecs(request.model).size());
  const PlanSearchResult result = SearchPlans(request);
  std::set<std::pair<int, int>> encoders;
  for (const ScoredPlan& each : result.plans) {
    const Plan& plan = each.plan;
    INFO(DescribeAxes(plan) << ", " << plan.schedule << " x " << plan.chunks());
    CHECK(plan.encoder == *request.pins.encoder.placement);
    CHECK(plan.encoder_copies() * plan.encoder_ranks() == 4);
    CHECK(plan.LayersOf(plan.num_stages() - 1).end == layers);
    encoders.insert({plan.encoder_ranks(), plan.encoder_chunks()});
    const PlanFitter fitter(request, Plan());
    CHECK(fitter.LowerBound(plan) <= each.step_s);
    CHECK(fitter.StepSecondsBound(plan) <= each.step_s * (1 + 1e-12));
    REQUIRE(each.memory.size() == 4);
    for (const MemoryForecast& rank : each.memory) {
      CHECK(rank.total() <= request.cluster.memory_bytes);
    }
    const PlanForecast forecast = ForecastPlan(request, plan);
    CHECK(static_cast<int>(forecast.stages.size()) == plan.num_stages());
    CHECK(forecast.bubbles.total() < 1);
    CHECK(forecast.bubbles.uneven_stages > -0.03);
    CHECK(forecast.bubbles.fill_and_drain < 0.75);
  }
  CHECK(encoders.size() >= 2);
}

TEST_CASE("an encoder with tensor ranks of its own: bounds, memory, forecast",
          "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-8b", 1, 16);
  request.pins.tensor = 4;
  request.pins.encoder.placement =
      GENERATE(EncoderPlacement::kThreePhase, EncoderPlacement::kOptimus);
  request.pins.encoder.tensor = GENERATE(1, 2);
  request.keep = 1000;
  const PlanSearchResult result = SearchPlans(request);
  REQUIRE(!result.plans.empty());
  for (const ScoredPlan& each : result.plans) {
    const Plan& plan = each.plan;
    INFO(DescribeAxes(plan) << ", " << plan.schedule << " x " << plan.chunks());
    CHECK(plan.encoder_tensor() == *request.pins.encoder.tensor);
    CHECK(plan.encoder_lanes() == 4 / plan.encoder_tensor());
    const PlanFitter fitter(request, plan);
    CHECK(fitter.LowerBound(plan) <= each.step_s * (1 + 1e-12));
    CHECK(fitter.StepSecondsBound(plan) <= each.step_s * (1 + 1e-12));
    for (const MemoryForecast& rank : each.memory) {
      CHECK(fitter.StateBytesBound(plan) <= rank.total());
      CHECK(rank.total() <= request.cluster.memory_bytes);
    }
    const PlanForecast forecast = ForecastPlan(request, plan);
    CHECK(static_cast<int>(forecast.stages.size()) == plan.num_stages());
    CHECK(forecast.bubbles.total() < 1);
  }
}

TEST_CASE("tensor ranks of an encoder in the bubbles are searched where they are open",
          "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-26b", 2, 32);
  request.pins.tensor = 4;
  request.pins.encoder.placement = EncoderPlacement::kOptimus;
  const PlanSearchResult free = SearchPlans(request);
  std::set<int> seen;
  for (const ScoredPlan& each : free.plans) seen.insert(each.plan.encoder_tensor());
  for (const RejectedPlan& each : free.rejected) seen.insert(each.plan.encoder_tensor());
  CHECK(seen == std::set<int>{1, 2, 4});
  const double least = LeastStepSeconds(request);
  CHECK(least <= free.plans.front().step_s);
  request.pins.encoder.tensor = 4;
  CHECK(free.plans.front().step_s <= SearchPlans(request).plans.front().step_s);
}

TEST_CASE("features that wait for the language model are in its first rank's memory",
          "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-8b", 1, 16);
  request.frozen = {"vision", "projector"};
  request.ranks = 2;
  request.cluster.devices_per_node = 2;
  request.pins.data = request.pins.tensor = 1;
  request.pins.schedule = "1f1b";
  request.cluster.memory_bytes = int64_t{1} << 50;
  request.pins.encoder.placement = EncoderPlacement::kThreePhase;
  request.pins.encoder.prefetch = GENERATE(false, true);
  const Plan plan = SearchPlans(request).plans.front().plan;
  const CostModel costs(request.model, request.cluster, request.CostOptions(plan));
  const int64_t each =
      costs.BoundaryBytes(plan.components.back().first_layer - 1, request.workload.worst);
  const auto activations = [&](int micro_batches) {
    PlanRequest of = request;
    of.workload.steps[0].resize(static_cast<size_t>(micro_batches));
    Plan again = plan;
    return PlanFitter(of, again).FitMemory(again).memory[0].activations;
  };
  // All are encoded first; two are taken when activations are most. What has been made for the next
  // step lies on the two ranks.
  const int64_t more = request.pins.encoder.prefetch ? 4 : 0;
  CHECK(activations(16) - activations(8) == (8 + more) * each);
}

TEST_CASE("gradients of features that wait for the encoder's backward are in its ranks' memory",
          "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-8b", 1, 64);
  request.ranks = request.cluster.devices_per_node = 2;
  request.cluster.memory_bytes = int64_t{1} << 50;
  request.pins.data = request.pins.tensor = 1;
  request.pins.schedule = "1f1b";
  request.pins.encoder.placement = EncoderPlacement::kThreePhase;
  request.pins.encoder.ranks = request.pins.encoder.chunks = 1;
  request.pins.recompute.assign(LayerSpecs(request.model).size(), Recompute::kFull);
  const Plan plan = SearchPlans(request).plans.front().plan;
  const CostModel costs(request.model, request.cluster, request.CostOptions(plan));
  const int text = plan.components.back().first_layer;
  int64_t each = costs.BoundaryBytes(text - 1, request.workload.worst);
  for (int layer = 0; layer < text; ++layer)
    each += costs.KeptBytes(layer, request.workload.worst, Recompute::kFull);
  const auto activations = [&](int micro_batches) {
    PlanRequest of = request;
    of.workload.steps[0].resize(static_cast<size_t>(micro_batches));
    Plan again = plan;
    return PlanFitter(of, again).FitMemory(again).memory[1].activations;
  };
  // The second of two copies has every other micro-batch.
  CHECK(activations(64) - activations(32) == 16 * each);
}

TEST_CASE("what copies of the encoder compute again costs each a part of the micro-batches",
          "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-26b", 1, 8);
  request.ranks = 4;
  request.pins.data = request.pins.tensor = 1;
  request.pins.pipeline = 4;
  request.pins.schedule = "1f1b";
  request.pins.encoder = {};
  request.pins.encoder.placement = EncoderPlacement::kOptimus;
  request.pins.encoder.ranks = 1;
  request.recompute = RecomputeRule::kAdaptive;
  request.cluster.memory_bytes = int64_t{1} << 50;
  Plan plan = SearchPlans(request).plans.front().plan;
  REQUIRE(plan.encoder_copies() == 4);
  const MemoryForecast whole = PlanFitter(request, plan).FitMemory(plan).memory[0];
  const double reserve = static_cast<double>(whole.reserve) / static_cast<double>(int64_t{1} << 50);
  const auto needs = static_cast<double>(whole.total() - whole.reserve - (int64_t{8} << 30));
  request.cluster.memory_bytes = static_cast<int64_t>(needs / (1 - reserve));
  CHECK_FALSE(PlanFitter(request, plan).FitMemory(plan).misfit);
  int encoder = 0, text = 0;
  for (int layer = 0; layer < plan.LayersOf(4 * plan.encoder_chunks()).end; ++layer) {
    const bool again = plan.recompute[static_cast<size_t>(layer)] != Recompute::kNone;
    (layer < plan.components.back().first_layer ? encoder : text) += again ? 1 : 0;
  }
  CHECK(encoder > 0);
  CHECK(text == 0);
}

// A step of a run that has gone on for some steps of equal micro-batches, as it builds it.
double StepOfRun(const PlanRequest& request, const Plan& plan, const std::vector<LayerLoad>& now) {
  const StageLayout stages(request.model, plan, request.frozen);
  const CostModel costs(request.model, request.cluster, request.CostOptions(plan));
  const auto count = static_cast<int>(now.size());
  StepLoads loads{now, {}, now};
  const SimulationCosts all = StageCosts(costs, plan, request.cluster, loads.All());
  double step_s = 0;
  for (int step = 0; step < 3; ++step) {
    const Schedule schedule = PlanSchedule(plan).StepOps(stages, loads, all);
    step_s = SimulateTimes(schedule, WithTaken(all, loads.taken())).step_s;
    loads.owners = NextOwners(schedule, stages.Encoder({}), count);
  }
  return step_s;
}

TEST_CASE("an encoder that runs a step ahead: the search knows its shorter step",
          "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-8b", 1, 16);
  request.frozen = {"vision", "projector"};
  request.pins.data = 2;
  request.pins.tensor = 1;
  request.pins.pipeline = 4;
  request.pins.encoder.placement = EncoderPlacement::kOptimus;
  request.keep = 1000;
  const PlanSearchResult without = SearchPlans(request);
  request.pins.encoder.prefetch = true;
  const PlanSearchResult ahead = SearchPlans(request);
  REQUIRE(!ahead.plans.empty());
  CHECK(ahead.plans.front().step_s < 0.99 * without.plans.front().step_s);
  for (const ScoredPlan& each : ahead.plans) {
    const Plan& plan = each.plan;
    INFO(plan.schedule << " x " << plan.chunks() << ", encoder " << plan.encoder_ranks() << " x "
                       << plan.encoder_chunks());
    const PlanFitter fitter(request, plan);
    CHECK(fitter.LowerBound(plan) <= each.step_s * (1 + 1e-12));
    CHECK(fitter.StepSecondsBound(plan) <= each.step_s * (1 + 1e-12));
    const double run_s = StepOfRun(request, plan, fitter.HeaviestLoads(2));
    CHECK(each.step_s == Approx(run_s).epsilon(0.01));
    const PlanForecast forecast = ForecastPlan(request, plan);
    CHECK(forecast.step_s.p50 == Approx(each.step_s));
    CHECK(forecast.bubbles.total() < 1);
  }
}

TEST_CASE("an encoder that may run a step ahead or be inline", "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-8b", 1, 16);
  request.frozen = {"vision", "projector"};
  request.pins.encoder.placement.reset();
  request.pins.encoder.prefetch = true;
  const PlanSearchResult free = SearchPlans(request);
  std::set<EncoderPlacement> seen;
  for (const ScoredPlan& each : free.plans) seen.insert(each.plan.encoder);
  for (const RejectedPlan& each : free.rejected) seen.insert(each.plan.encoder);
  CHECK(seen == std::set{EncoderPlacement::kInline, EncoderPlacement::kOptimus});
  request.pins.encoder = {};
  CHECK(free.plans.front().step_s <= SearchPlans(request).plans.front().step_s);
}

TEST_CASE("a searched place of the encoder is never slower than a given one",
          "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-26b", 1, 16);
  request.pins.encoder.placement.reset();
  const PlanSearchResult free = SearchPlans(request);
  std::set<EncoderPlacement> seen;
  for (const ScoredPlan& each : free.plans) seen.insert(each.plan.encoder);
  for (const RejectedPlan& each : free.rejected) seen.insert(each.plan.encoder);
  CHECK(seen.size() == 3);
  request.threads = 3;
  const PlanSearchResult beside = SearchPlans(request);
  REQUIRE(beside.plans.size() == free.plans.size());
  REQUIRE(beside.rejected.size() == free.rejected.size());
  CHECK(beside.simulated == free.simulated);
  for (size_t i = 0; i < free.plans.size(); ++i) {
    CHECK(beside.plans[i].plan == free.plans[i].plan);
    CHECK(beside.plans[i].step_s == free.plans[i].step_s);
  }
  for (size_t i = 0; i < free.rejected.size(); ++i) {
    CHECK(beside.rejected[i].plan == free.rejected[i].plan);
    CHECK(beside.rejected[i].reason == free.rejected[i].reason);
  }
  for (const EncoderPlacement placement :
       {EncoderPlacement::kInline, EncoderPlacement::kDisaggregated, EncoderPlacement::kOptimus}) {
    INFO(ToString(placement));
    request.pins.encoder.placement = placement;
    CHECK(free.plans.front().step_s <= SearchPlans(request).plans.front().step_s * (1 + 1e-9));
  }
}

}  // namespace
}  // namespace equipoise
