#include "balance/search/plan_search.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <utility>

#include "balance/search/plan_fit.h"
#include "balance/search/plan_shapes.h"
#include "configs/base/error.h"
#include "models/families/presets.h"
#include "parallel/schedule/builders.h"
#include "tests/balance/search_request.h"
#include "tests/models/load_of.h"

namespace equipoise {
namespace {

using testing::CheckStages;
using testing::ErrorOf;
using testing::Request;

// Of 25 heads, for which 64 tensor ranks are too many: then the encoder is in the bubbles.
TEST_CASE("an encoder's heads are counted where it has no tensor ranks of its own",
          "[plan_search][cpu]") {
  PlanRequest request = Request("internvl3-78b", 8, 64);
  request.cluster.devices_per_node = 64, request.cluster.nodes = 1;
  request.pins.encoder.placement.reset();
  request.pins.encoder.tensor = 1;
  int most = 0;
  for (const Plan& plan : PlanShapes(request)) {
    most = std::max(most, plan.tensor());
    CHECK((FillsBubbles(plan.encoder) || plan.tensor() <= 25));
  }
  CHECK(most > 25);
  // Where the tensor ranks are pinned there are no plans with an inline encoder to go by.
  request.pins.tensor = 32;
  request.pins.encoder.placement = EncoderPlacement::kOptimus;
  request.cluster.memory_bytes *= 4;
  CHECK_FALSE(SearchPlans(request).plans.empty());
  request.pins.encoder.tensor.reset();
  for (const ScoredPlan& each : SearchPlans(request).plans) CHECK(each.plan.encoder_tensor() <= 25);
}

TEST_CASE("shapes use all ranks and whole micro-batches", "[plan_search][cpu]") {
  const PlanRequest request = Request("internvl2-26b", 8, 512);
  const std::vector<Plan> shapes = PlanShapes(request);
  CHECK(shapes.size() > 40);
  for (const Plan& plan : shapes) {
    CHECK(plan.num_ranks() == 64);
    CHECK(512 % plan.data() == 0);
    CHECK(plan.tensor() <= 8);
    CHECK(FindSchedule(plan.schedule)->chunked() == (plan.chunks() > 1));
  }
}

TEST_CASE("ranks that share layers are never planned over two nodes", "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-26b", 3, 48);  // 24 ranks, 8 in a node
  std::set<int> tensor;
  for (const Plan& plan : PlanShapes(request)) tensor.insert(plan.tensor());
  CHECK(tensor == std::set<int>{1, 2, 4, 8});
  request.pins.tensor = 3;  // as it is told
  CHECK(PlanShapes(request).front().tensor() == 3);
  request = Request("internvl2-26b", 1, 48);
  request.ranks = 6;  // a part of one node
  tensor.clear();
  for (const Plan& plan : PlanShapes(request)) tensor.insert(plan.tensor());
  CHECK(tensor == std::set<int>{1, 2, 3, 6});
}

TEST_CASE("plans fit the memory, fastest first, the same each time", "[plan_search][cpu]") {
  const PlanRequest request = Request("internvl2-26b", 4, 64);
  const PlanSearchResult result = SearchPlans(request);
  REQUIRE(result.plans.size() == 5);
  double before = 0;
  for (const ScoredPlan& each : result.plans) {
    CHECK(each.plan.num_ranks() == 32);
    CheckStages(each.plan, 97);
    CHECK(each.peak_bytes() <= request.cluster.memory_bytes);
    CHECK(each.step_s >= before);
    before = each.step_s;
  }
  CHECK(result.considered == static_cast<int>(result.plans.size() + result.rejected.size()));
  const PlanSearchResult again = SearchPlans(request);
  for (size_t i = 0; i < result.plans.size(); ++i) {
    CHECK(again.plans[i].plan == result.plans[i].plan);
  }
}

TEST_CASE("a lower bound leaves out no better plan", "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-8b", 2, 32);
  const double best = SearchPlans(request).plans.front().step_s;
  request.keep = 1000;  // nothing is left out
  const PlanSearchResult all = SearchPlans(request);
  CHECK(all.plans.front().step_s == best);
  for (const ScoredPlan& each : all.plans) {
    const PlanFitter fitter(request, each.plan);
    CHECK(fitter.LowerBound(each.plan) <= each.step_s);
    CHECK(fitter.StepSecondsBound(each.plan) <= each.step_s * (1 + 1e-12));
  }
}

TEST_CASE("a lower bound holds where micro-batches differ in every layer", "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-8b", 1, 16);
  request.keep = 1000;
  std::vector<LayerLoad>& packs = request.workload.steps.front();
  for (size_t i = 0; i < packs.size(); i += 2) packs[i] = LoadOf(request.model, 0, 900);
  for (const ScoredPlan& each : SearchPlans(request).plans) {
    const PlanFitter fitter(request, each.plan);
    CHECK(fitter.LowerBound(each.plan) <= each.step_s);
    CHECK(fitter.StepSecondsBound(each.plan) <= each.step_s * (1 + 1e-12));
  }
}

TEST_CASE("no plan is listed twice", "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-2b", 2, 64);  // state is shared out within nodes too
  request.keep = 1000;
  const PlanSearchResult result = SearchPlans(request);
  for (size_t i = 0; i < result.plans.size(); ++i) {
    for (size_t j = 0; j < i; ++j) CHECK_FALSE(result.plans[i].plan == result.plans[j].plan);
  }
}

TEST_CASE("updates are delayed where that is asked for", "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-8b", 2, 32);
  request.pins.encoder.placement = std::nullopt;
  request.keep = 1000;
  const auto delayed = [](const ScoredPlan& each) { return DelaysUpdates(each.plan.schedule); };
  const std::vector<ScoredPlan> free = SearchPlans(request).plans;
  CHECK(std::none_of(free.begin(), free.end(), delayed));
  request.pins.schedule = "pipedream_2bw";
  const std::vector<ScoredPlan> all = SearchPlans(request).plans;
  REQUIRE_FALSE(all.empty());
  CHECK(std::all_of(all.begin(), all.end(), delayed));
  for (const ScoredPlan& each : all) {
    CHECK_FALSE(FillsBubbles(each.plan.encoder));
    CHECK(each.plan.sharded <= ShardedState::kOptimizer);
    const PlanFitter fitter(request, each.plan);
    CHECK(fitter.LowerBound(each.plan) <= each.step_s);
    CHECK(fitter.StepSecondsBound(each.plan) <= each.step_s * (1 + 1e-12));
  }
}

TEST_CASE("what is pinned stays", "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-26b", 8, 128);
  request.pins.pipeline = 4;
  request.pins.tensor = 4;
  request.pins.schedule = "1f1b";
  request.pins.sharded = ShardedState::kNone;
  const Plan plan = SearchPlans(request).plans.front().plan;
  CHECK(plan.pipeline() == 4);
  CHECK(plan.tensor() == 4);
  CHECK(plan.data() == 4);
  CHECK(plan.schedule == "1f1b");
  CHECK(plan.chunks() == 1);
  CHECK(plan.sharded == ShardedState::kNone);
  request.pins.stage_begins = {0, 20, 40, 60, 97};
  CHECK(SearchPlans(request).plans.front().plan.stage_begins == request.pins.stage_begins);
}

TEST_CASE("recomputation is the least that fits, and follows the rule", "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-26b", 8, 128);
  request.pins.pipeline = 8;
  request.pins.tensor = 1;
  request.pins.schedule = "1f1b";
  const ScoredPlan adaptive = SearchPlans(request).plans.front();
  request.recompute = RecomputeRule::kFull;
  const ScoredPlan full = SearchPlans(request).plans.front();
  CHECK(std::count(full.plan.recompute.begin(), full.plan.recompute.end(), Recompute::kFull) == 97);
  CHECK(adaptive.step_s < full.step_s);
  CHECK(adaptive.peak_bytes() > full.peak_bytes());
  request.recompute = RecomputeRule::kNone;
  CHECK(SearchPlans(request).plans.empty());
  request.cluster.memory_bytes *= 100;
  const ScoredPlan none = SearchPlans(request).plans.front();
  CHECK(none.step_s <= adaptive.step_s);
  request.recompute = RecomputeRule::kAdaptive;
  CHECK(SearchPlans(request).plans.front().step_s == none.step_s);
}

TEST_CASE("balanced stages beat those cut by parameters", "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-26b", 8, 128);
  request.pins.pipeline = 4;
  request.pins.tensor = 2;
  request.pins.schedule = "1f1b";
  const double balanced = SearchPlans(request).plans.front().step_s;
  request.partition = PartitionRule::kFlops;
  CHECK(balanced <= SearchPlans(request).plans.front().step_s);
  request.partition = PartitionRule::kParameters;
  CHECK(balanced < 0.9 * SearchPlans(request).plans.front().step_s);
}

TEST_CASE("small models keep all ranks on data", "[plan_search][cpu]") {
  PlanRequest request = Request("quickstart", 1, 16);
  ClusterConfig local;
  request.cluster = MakeCluster(local);
  request.cluster.devices_per_node = 2;
  request.ranks = 2;
  request.element_bytes = 4;
  request.workload.steps = {std::vector<LayerLoad>(16, LoadOf(request.model, 4, 256))};
  request.workload.worst = LoadOf(request.model, 4, 256);
  const Plan plan = SearchPlans(request).plans.front().plan;
  CHECK(plan.data() == 2);
}

TEST_CASE("what does not fit is refused with what would", "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-26b", 1, 128);
  request.cluster.memory_bytes /= 2;
  const std::string text = ErrorOf(request, ExitCode::kNoPlan);
  CHECK(text.find("no plan fits 8 ranks") != std::string::npos);
  CHECK(text.find("9 tiles and 4096 tokens") != std::string::npos);
  CHECK(text.find("cluster.memory_gb of") != std::string::npos);
  CHECK(text.find(", or 16 ranks of as much memory, ") != std::string::npos);
  request.pins.data = 2;
  CHECK(ErrorOf(request, ExitCode::kNoPlan)
            .find(", or 16 ranks of as much memory and parallel.data not given, ") !=
        std::string::npos);
}

TEST_CASE("the memory that is told would do, and little less would not", "[plan_search][cpu]") {
  const std::string said = "cluster.memory_gb of ";
  // On one rank the state alone is too large.
  for (const auto& [ranks, gib] : {std::pair{1, 40}, {8, 48}, {8, 55}}) {
    INFO(ranks << " ranks of " << gib << " GiB");
    PlanRequest request = Request("internvl2-26b", 1, 128);
    request.ranks = ranks;
    request.cluster.memory_bytes = int64_t{gib} << 30;
    const std::string text = ErrorOf(request, ExitCode::kNoPlan);
    const double told = std::stod(text.substr(text.find(said) + said.size()));
    const auto fits = [&](double memory) {
      request.cluster.memory_bytes = static_cast<int64_t>(memory * (int64_t{1} << 30));
      return !SearchPlans(request).plans.empty();
    };
    CHECK(fits(told));
    CHECK_FALSE(fits(told - 0.3));
    // Where the state is too large, smaller micro-batches would not help.
    CHECK((text.find("smaller balance.tiles") != std::string::npos) == (gib == 55));
  }
}

TEST_CASE("70B fit on one node with the optimizer offloaded, in the host memory that is told",
          "[plan_search][cpu]") {
  PlanRequest request = Request("qwen2_vl-72b", 1, 64);
  const std::string whole = ErrorOf(request, ExitCode::kNoPlan);
  CHECK(whole.find("train.offload: [optimizer]") != std::string::npos);
  request.pins.offloaded = ShardedState::kOptimizer;
  CHECK(SomePlanFits(request));
  const PlanSearchResult found = SearchPlans(request);
  REQUIRE(!found.plans.empty());
  for (const ScoredPlan& each : found.plans) {
    CHECK(each.peak_bytes() <= request.cluster.memory_bytes);
    for (const MemoryForecast& rank : each.memory) {
      CHECK(rank.optimizer == 0);
      CHECK(rank.host > 0);
    }
    CHECK(HostBytesOfNode(request.cluster, each.plan, each.memory) <= request.cluster.host.bytes);
  }
  request.cluster.host.bytes /= 4;
  CHECK_FALSE(SomePlanFits(request));
  const std::string said = "cluster.host_gb of ";
  const std::string text = ErrorOf(request, ExitCode::kNoPlan);
  INFO(text);
  REQUIRE(text.find(said) != std::string::npos);
  CHECK(text.find(" ranks, ") != std::string::npos);
  const double told = std::stod(text.substr(text.find(said) + said.size()));
  const auto fits = [&](double gib) {
    request.cluster.host.bytes = static_cast<int64_t>(gib * (int64_t{1} << 30));
    return SomePlanFits(request);
  };
  CHECK(fits(told));
  CHECK_FALSE(fits(told - 0.3));
}

TEST_CASE("a card that cannot hold what is trained has it in host memory", "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-8b", 1, 8);
  request.ranks = 1;
  request.cluster.memory_bytes = int64_t{24} << 30;
  request.recompute = RecomputeRule::kFull;
  const std::string text = ErrorOf(request, ExitCode::kNoPlan);
  INFO(text);
  // 8 B weights in bf16 take 15 GiB, their gradients 30.
  CHECK(text.find("train.offload: [optimizer, gradients]") != std::string::npos);
  request.pins.sharded = ShardedState::kGradients;
  request.pins.offloaded = ShardedState::kGradients;
  const ScoredPlan gradients = SearchPlans(request).plans.front();
  CHECK(gradients.memory[0].gradients == 0);
  request.cluster.memory_bytes = int64_t{12} << 30;
  CHECK(ErrorOf(request, ExitCode::kNoPlan).find("train.offload") == std::string::npos);
  request.pins.sharded.reset();
  request.pins.offloaded = ShardedState::kNone;
  CHECK(ErrorOf(request, ExitCode::kNoPlan)
            .find("train.offload: [optimizer, gradients, parameters]") != std::string::npos);
  request.pins.sharded = ShardedState::kParameters;
  request.pins.offloaded = ShardedState::kParameters;
  const ScoredPlan all = SearchPlans(request).plans.front();
  CHECK(all.memory[0].parameters == 0);
  CHECK(all.peak_bytes() <= request.cluster.memory_bytes);
  CHECK(all.step_s > gradients.step_s);
}

TEST_CASE("gradients in host memory are no advice where passes have them as a whole",
          "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-8b", 1, 8);
  request.ranks = 1;
  request.recompute = RecomputeRule::kFull;
  const auto offload = [&] {
    return ErrorOf(request, ExitCode::kNoPlan).find("train.offload") != std::string::npos;
  };
  // Too little for gradients of 30 GiB, and enough for weights of 15 GiB, or two versions of them.
  request.cluster.memory_bytes = int64_t{24} << 30;
  CHECK(offload());
  request.pins.encoder.placement = EncoderPlacement::kOptimus;
  CHECK_FALSE(offload());
  request.pins.encoder = {};
  request.pins.schedule = "pipedream_2bw";
  request.cluster.memory_bytes = int64_t{44} << 30;
  CHECK_FALSE(offload());
}

TEST_CASE("every shape has in host memory what is asked for", "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-8b", 1, 16);
  request.pins.tensor = 4;
  request.pins.encoder.placement = EncoderPlacement::kOptimus;
  request.pins.offloaded = ShardedState::kOptimizer;
  const PlanSearchResult result = SearchPlans(request);
  REQUIRE(!result.plans.empty());
  int with_lanes = 0;
  const auto check = [&](const Plan& plan) {
    CHECK(plan.offloaded == ShardedState::kOptimizer);
    with_lanes += plan.encoder_lanes() > 1 ? 1 : 0;
  };
  for (const ScoredPlan& each : result.plans) check(each.plan);
  for (const RejectedPlan& each : result.rejected) check(each.plan);
  CHECK(with_lanes > 0);
}

TEST_CASE("activations lie in host memory where that costs less than to compute them again",
          "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-26b", 2, 32);
  const auto best = [&] { return SearchPlans(request).plans.front(); };
  const auto with = [](const ScoredPlan& each, Recompute kind) {
    return std::count(each.plan.recompute.begin(), each.plan.recompute.end(), kind) > 0;
  };
  request.pins.tensor = 1;
  const ScoredPlan without = best();
  REQUIRE(with(without, Recompute::kFull));
  request.style.offloads_activations = true;
  CHECK(best().step_s <= without.step_s);
  request.cluster.host.link_bytes_per_s *= 4;
  const ScoredPlan offloaded = best();
  CHECK(offloaded.step_s < without.step_s);
  CHECK((with(offloaded, Recompute::kFullOffload) || with(offloaded, Recompute::kOffload)));
  CHECK(offloaded.peak_bytes() <= request.cluster.memory_bytes);
  CHECK(offloaded.memory.front().host > 0);
  // A fast link hides the copies of all that a block keeps.
  request.cluster.host.link_bytes_per_s *= 25;
  const ScoredPlan fast = best();
  CHECK(fast.step_s < offloaded.step_s);
  CHECK(with(fast, Recompute::kOffload));
  CHECK_FALSE(with(fast, Recompute::kFull));
  // Without host memory nothing is offloaded.
  request.cluster.host.bytes = 0;
  CHECK(best().plan.recompute == without.plan.recompute);
  CHECK(best().step_s == without.step_s);
}

TEST_CASE("what takes no product is computed again first", "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-8b", 1, 16);
  request.pins.tensor = 4;
  request.pins.pipeline = 2;
  const ScoredPlan roomy = SearchPlans(request).plans.front();
  const auto with = [](const ScoredPlan& each, Recompute kind) {
    return std::count(each.plan.recompute.begin(), each.plan.recompute.end(), kind);
  };
  REQUIRE(with(roomy, Recompute::kNone) == std::ssize(roomy.plan.recompute));
  request.cluster.memory_bytes = roomy.peak_bytes() * 8 / 10;
  const ScoredPlan tight = SearchPlans(request).plans.front();
  CHECK(tight.peak_bytes() <= request.cluster.memory_bytes);
  const auto others = std::ssize(tight.plan.recompute) - with(tight, Recompute::kNone) -
                      with(tight, Recompute::kElementwise);
  CHECK(with(tight, Recompute::kElementwise) > 10 * others);
  CHECK(tight.step_s < 1.02 * roomy.step_s);
}

TEST_CASE("plans within a time are those of a whole search", "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-8b", 2, 32);
  const std::vector<ScoredPlan> all = SearchPlans(request).plans;
  REQUIRE(all.size() == 5);
  request.within_s = all[2].step_s;
  const PlanSearchResult some = SearchPlans(request);
  REQUIRE(some.plans.size() == 2);
  for (size_t i = 0; i < 2; ++i) CHECK(some.plans[i].plan == all[i].plan);
  request.within_s = all[0].step_s;
  const PlanSearchResult none = SearchPlans(request);
  CHECK(none.plans.empty());
  CHECK(none.considered == static_cast<int>(none.rejected.size()));
}

TEST_CASE("whether some plan fits is what the search finds", "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-8b", 1, 16);
  std::set<bool> found;
  for (const RecomputeRule rule : {RecomputeRule::kAdaptive, RecomputeRule::kNone}) {
    request.recompute = rule;
    for (const int64_t gib : {8, 14, 18, 22, 30, 60}) {
      INFO(gib << " GiB");
      request.cluster.memory_bytes = gib << 30;
      const bool fits = !SearchPlans(request).plans.empty();
      CHECK(SomePlanFits(request) == fits);
      found.insert(fits);
    }
  }
  CHECK(found.size() == 2);
}

TEST_CASE("pins that leave nothing are a mistake", "[plan_search][cpu]") {
  PlanRequest request = Request("internvl2-8b", 1, 6);
  request.pins.data = 4;  // 6 packs cannot be dealt to 4 data ranks
  CHECK(ErrorOf(request, ExitCode::kBadUsage).find("data 4") != std::string::npos);
  request.pins.data = 3;  // 8 ranks have no third
  CHECK(ErrorOf(request, ExitCode::kBadUsage).find("8 ranks") != std::string::npos);
}

}  // namespace
}  // namespace equipoise
