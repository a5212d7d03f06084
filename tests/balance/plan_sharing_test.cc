// Which ranks share out rows, tokens and state: what the search finds where that is open.

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "balance/search/plan_search.h"
#include "balance/search/plan_shapes.h"
#include "balance/search/plan_traffic.h"
#include "tests/balance/search_request.h"
#include "tests/models/load_of.h"

namespace equipoise {
namespace {

using testing::ErrorOf;
using testing::Request;

TEST_CASE("sequence parallelism is searched where it is open", "[plan_sharing][cpu]") {
  PlanRequest request = Request("internvl2-26b", 2, 32);
  request.pins.tensor = 4;
  const auto best = [&](std::optional<bool> sequence) {
    request.pins.sequence = sequence;
    return SearchPlans(request).plans.front();
  };
  const ScoredPlan without = best(false), with = best(true), either = best(std::nullopt);
  CHECK_FALSE(without.plan.sequence);
  CHECK(with.plan.sequence);
  CHECK(either.step_s == Approx(std::min(without.step_s, with.step_s)));
  CHECK(LeastStepSeconds(request) <= either.step_s);
  // Memory that is enough for what tensor ranks keep when they share out rows too.
  request.recompute = RecomputeRule::kNone;
  request.pins.pipeline = 1;
  request.pins.sharded = ShardedState::kOptimizer;
  request.pins.zero_ranks = 4;
  request.cluster.memory_bytes = int64_t{1} << 50;
  request.cluster.reserve_share = 0;
  const int64_t whole = best(false).peak_bytes(), shared = best(true).peak_bytes();
  REQUIRE(shared < whole);
  request.cluster.memory_bytes = (shared + whole) / 2;
  request.pins.sequence = false;
  CHECK_FALSE(SomePlanFits(request));
  request.pins.sequence = std::nullopt;
  CHECK(SomePlanFits(request));
  CHECK(SearchPlans(request).plans.front().plan.sequence);
}

TEST_CASE("ZeRO 3 with shared rows is found where neither is enough alone", "[plan_sharing][cpu]") {
  PlanRequest request = Request("internvl2-26b", 2, 32);
  request.pins.tensor = 4;
  request.pins.pipeline = 1;
  request.recompute = RecomputeRule::kFull;
  request.cluster.memory_bytes = int64_t{1} << 50;
  request.cluster.reserve_share = 0;
  request.pins.sharded = ShardedState::kParameters;
  const auto least_bytes = [&](bool sequence) {
    request.pins.sequence = sequence;
    int64_t least = request.cluster.memory_bytes;
    for (const ScoredPlan& each : SearchPlans(request).plans)
      least = std::min(least, each.peak_bytes());
    return least;
  };
  const int64_t whole = least_bytes(false), shared = least_bytes(true);
  REQUIRE(shared < whole);
  request.cluster.memory_bytes = shared;
  request.pins.sequence.reset();
  request.pins.sharded = ShardedState::kOptimizer;
  for (const RejectedPlan& each : SearchPlans(request).rejected)
    CHECK_THAT(each.reason, Catch::Contains("optimizer state alone need"));
  request.pins.sharded.reset();
  CHECK(SomePlanFits(request));
  const PlanSearchResult found = SearchPlans(request);
  REQUIRE(!found.plans.empty());
  CHECK(found.plans.front().plan.sequence);
  CHECK(found.plans.front().plan.IsSharded(ShardedState::kParameters));
}

// The plans that tell which meshes an encoder in the bubbles is tried on may all be with sequence
// parallelism, which is tried later.
TEST_CASE("an encoder in the bubbles is tried where all plans without have sequence parallelism",
          "[plan_sharing][cpu]") {
  PlanRequest request = Request("internvl2-26b", 2, 32);
  request.pins.tensor = 4;
  request.pins.pipeline = 1;
  request.pins.sharded = ShardedState::kOptimizer;
  request.pins.zero_ranks = 4;
  request.recompute = RecomputeRule::kNone;
  request.cluster.memory_bytes = int64_t{1} << 50;
  request.cluster.reserve_share = 0;
  const auto least_bytes = [&](bool sequence) {
    request.pins.sequence = sequence;
    int64_t least = request.cluster.memory_bytes;
    for (const ScoredPlan& each : SearchPlans(request).plans) {
      least = std::min(least, each.peak_bytes());
    }
    return least;
  };
  const int64_t whole = least_bytes(false), shared = least_bytes(true);
  REQUIRE(shared < whole);
  request.cluster.memory_bytes = (shared + whole) / 2;
  request.pins.sequence.reset();
  request.pins.encoder.placement = EncoderPlacement::kThreePhase;
  const PlanSearchResult result = SearchPlans(request);
  CHECK(result.plans.size() + result.rejected.size() > 0);
}

TEST_CASE("state is shared out within nodes where links between them are slow",
          "[plan_sharing][cpu]") {
  PlanRequest request = Request("internvl2-8b", 4, 64);
  request.pins.tensor = request.pins.pipeline = 1;
  request.pins.sharded = ShardedState::kParameters;
  request.cluster.inter.bytes_per_s /= 10;
  const auto best = [&] { return SearchPlans(request).plans.front(); };
  const ScoredPlan within = best();
  CHECK(within.plan.zero_ranks == 8);
  request.pins.zero_ranks = 32;  // all of them
  const ScoredPlan spread = best();
  CHECK(spread.plan.zero_ranks == 0);
  CHECK(within.step_s < spread.step_s);
  CHECK(within.peak_bytes() > spread.peak_bytes());
  request.pins.zero_ranks = 16;
  CHECK(best().plan.zero_ranks == 16);
  // Every stage of ZeRO is open: no plan is found twice.
  PlanRequest open = request;
  open.pins.zero_ranks.reset();
  open.pins.sharded.reset();
  open.pins.sequence.reset();
  open.cluster.memory_bytes = within.peak_bytes();
  open.keep = 20;
  std::set<std::string> plans;
  const PlanSearchResult result = SearchPlans(open);
  for (const ScoredPlan& each : result.plans) {
    const Plan& plan = each.plan;
    plans.insert(fmt::format("{} {} x {} ZeRO {} on {}", DescribeAxes(plan), plan.schedule,
                             plan.chunks(), ZeroStage(plan.sharded), plan.zero_ranks));
  }
  CHECK(plans.size() == result.plans.size());
  CHECK(std::any_of(result.plans.begin(), result.plans.end(),
                    [](const ScoredPlan& each) { return each.plan.zero_ranks > 0; }));
  request.pins.zero_ranks = 3;  // divides no number of data ranks
  CHECK(ErrorOf(request, ExitCode::kBadUsage).find("ZeRO ranks 3") != std::string::npos);
}

TEST_CASE("a given number of ranks that share out state leaves no plan that shares out none",
          "[plan_sharing][cpu]") {
  PlanRequest request = Request("internvl2-2b", 2, 32);
  request.pins.tensor = request.pins.pipeline = 1;
  request.keep = 20;
  const auto has_whole_state = [&] {
    const PlanSearchResult result = SearchPlans(request);
    REQUIRE_FALSE(result.plans.empty());
    return std::any_of(result.plans.begin(), result.plans.end(),
                       [](const ScoredPlan& each) { return each.plan.shards() == 1; });
  };
  CHECK(has_whole_state());
  for (const int ranks : {8, 16}) {
    request.pins.zero_ranks = ranks;
    CHECK_FALSE(has_whole_state());
  }
}

TEST_CASE("context ranks: longer rows fit, states are spread over all ranks with the same weights",
          "[plan_sharing][cpu]") {
  PlanRequest request = Request("internvl2-2b", 1, 16);
  request.pins.tensor = 1;
  request.pins.pipeline = 1;
  request.recompute = RecomputeRule::kNone;
  request.workload.worst = LoadOf(request.model, 9, 32768);
  request.workload.steps = {std::vector<LayerLoad>(16, request.workload.worst)};
  CHECK_FALSE(ErrorOf(request, ExitCode::kNoPlan).empty());
  request.pins.context = request.style.context = 8;
  for (const Plan& shape : PlanShapes(request)) {
    CHECK(shape.data() == 1);
    CHECK(shape.context() == 8);
    CHECK(shape.shards() == 8);
  }
  const PlanSearchResult result = SearchPlans(request);
  REQUIRE_FALSE(result.plans.empty());
  // All-to-alls within the node, beside the gradients' sum.
  const CostModel costs(request.model, request.cluster, {.frozen = {}, .style = request.style});
  const RankTraffic traffic = TrafficOf(request, costs, result.plans.front().plan);
  CHECK(traffic.between_nodes_bytes == 0);
  const double heads = 2 * 16 + 2 * 8;  // queries and results, keys and values; 24 blocks
  const double elements = 2 * 16.0 * 32768 / 8 * 7 / 8 * heads * 128 * 24;
  const double parameters = 2.2e9;  // gradients in fp32 one way, weights in bf16 the other
  CHECK(traffic.within_node_bytes ==
        Approx(2 * elements + (4 + 2) * 7.0 / 8 * parameters).epsilon(0.03));
}

}  // namespace
}  // namespace equipoise
