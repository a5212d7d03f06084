// What a step ends with: sums of gradients, the update, new weights for other ranks.

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "balance/costs/collective_time.h"
#include "balance/costs/stage_costs.h"
#include "models/families/modules.h"
#include "models/families/presets.h"
#include "parallel/plan.h"

namespace equipoise {
namespace {

Cluster EightNodes() {
  ClusterConfig config;
  config.preset = "a100-80g";
  config.nodes = 8;
  return MakeCluster(config);
}

struct Case {
  ModelConfig model = PresetConfig("internvl2-26b");
  Cluster cluster = EightNodes();
  Plan plan = InlinePlan({.data = 8, .pipeline = 4, .tensor = 2});

  Case() { plan.stage_begins = {0, 29, 54, 74, 97}; }
  CostModel costs(const std::vector<std::string>& frozen = {}) const {
    CostModel::Options options;
    options.tensor = plan.tensor();
    options.frozen = frozen;
    return CostModel(model, cluster, options);
  }
  double gradient_bytes(int stage) const {
    return 4 * static_cast<double>(ParametersOfStage(costs(), plan, stage).trained);
  }
};

TEST_CASE("gradients are reduced in fp32, to shards under ZeRO 1", "[balance][cpu]") {
  Case c;
  const CostModel costs = c.costs();
  double parameters = 0;
  for (int layer = 0; layer < 29; ++layer) {
    parameters += static_cast<double>(costs.Parameters(layer));
  }
  const double whole = ReduceSeconds(costs, c.plan, c.cluster, 0);
  CHECK(whole == Approx(2 * 7 * (4 * parameters / 8 / 23e9 + 6e-6)));
  // Beside a long backward all but the last layer's part, and what the kernels lose.
  CHECK(ReduceSeconds(costs, c.plan, c.cluster, 0, /*backward_s=*/10 * whole) < whole / 2);
  CHECK(ReduceSeconds(costs, c.plan, c.cluster, 0, 10 * whole) >= whole / 29);
  CHECK(SumCopiesSeconds(costs, c.plan, c.cluster, 0) == 0);
  c.plan.sharded = ShardedState::kOptimizer;
  CHECK(ReduceSeconds(costs, c.plan, c.cluster, 0) == Approx(whole / 2));
  CHECK(SumCopiesSeconds(costs, c.plan, c.cluster, 0) == 0);
  CHECK(OptimizerSeconds(costs, c.plan, c.cluster, 0) > 0);
}

TEST_CASE("new weights are gathered beside the next forward, on GPUs", "[balance][cpu]") {
  Case c;
  c.plan.sharded = ShardedState::kOptimizer;
  const CostModel costs = c.costs();
  const double gather_s = 7 * (c.gradient_bytes(0) / 2 / 8 / 23e9 + 6e-6);  // in bf16
  Cluster cpus = c.cluster;
  cpus.multiprocessors = 0;
  // Of 29 layers only the first has nothing to run beside.
  CHECK(OptimizerSeconds(costs, c.plan, cpus, 0) - OptimizerSeconds(costs, c.plan, c.cluster, 0) ==
        Approx(gather_s * 28 / 29));
  CostModel::Options options = costs.options();
  options.style.overlaps_gather = false;
  const CostModel behind(c.model, c.cluster, options);
  CHECK(OptimizerSeconds(behind, c.plan, c.cluster, 0) ==
        Approx(OptimizerSeconds(costs, c.plan, cpus, 0)));
}

TEST_CASE("copies of sharded state are summed behind the last backward under ZeRO 1",
          "[balance][cpu]") {
  Case c;
  c.cluster.devices_per_node = 32;  // the 8 data ranks lie 8 apart: 4 in each of 2 nodes
  c.plan.sharded = ShardedState::kOptimizer;
  c.plan.zero_ranks = 4;
  const CostModel costs = c.costs();
  const double bytes = c.gradient_bytes(1);
  // A reduction to shards within the node, then a sum of each shard over the two nodes.
  const double summed_s = ReduceScatterSeconds(bytes, 4, ShardLink(c.cluster, c.plan, 4));
  const double copies_s = AllReduceSeconds(bytes / 4, 2, CopyLink(c.cluster, c.plan, 4));
  CHECK(ReduceSeconds(costs, c.plan, c.cluster, 1) == Approx(summed_s));
  CHECK(SumCopiesSeconds(costs, c.plan, c.cluster, 1) == Approx(copies_s));
  // Beside a backward only the first of them runs, as in the one node of half the ranks.
  Plan one = InlinePlan({.data = 4, .pipeline = 4, .tensor = 2});
  one.stage_begins = c.plan.stage_begins;
  one.sharded = ShardedState::kOptimizer;
  CHECK(ReduceSeconds(costs, c.plan, c.cluster, 1, /*backward_s=*/10) ==
        Approx(ReduceSeconds(costs, one, c.cluster, 1, 10)));
  CHECK(SumCopiesSeconds(costs, one, c.cluster, 1) == 0);
  const SimulationCosts simulation = StageCosts(costs, c.plan, c.cluster, {});
  CHECK(simulation.seconds({OpKind::kOptimizer}) > copies_s);
  // ZeRO 2 and 3 sum them layer by layer, but for gradients in host memory.
  for (const ShardedState sharded : {ShardedState::kGradients, ShardedState::kParameters}) {
    c.plan.sharded = sharded;
    c.plan.offloaded = ShardedState::kNone;
    const double beside_s = ReduceSeconds(costs, c.plan, c.cluster, 1, 10);
    CHECK(SumCopiesSeconds(costs, c.plan, c.cluster, 1) == 0);
    CHECK(ReduceSeconds(costs, c.plan, c.cluster, 1) - beside_s > copies_s / 2);
    c.plan.offloaded = ShardedState::kGradients;
    CHECK(SumCopiesSeconds(costs, c.plan, c.cluster, 1) == Approx(copies_s));
    CHECK(ReduceSeconds(costs, c.plan, c.cluster, 1, 10) ==
          ReduceSeconds(costs, c.plan, c.cluster, 1));
  }
}

TEST_CASE("data ranks add what the copies of an encoder have added, behind all backwards",
          "[balance][cpu]") {
  Case c;
  const int encoder = NumEncoderLayers(c.model);
  const auto plan_of = [&](int ranks, std::vector<int> begins) {
    c.plan =
        PlanInBubbles({.data = 2, .pipeline = 2}, {EncoderPlacement::kOptimus, ranks, 1, encoder});
    c.plan.stage_begins = std::move(begins);
  };
  plan_of(/*ranks=*/1, {0, encoder, 70, 97});
  const CostModel costs = c.costs();
  const double bytes = c.gradient_bytes(0);
  const double copies_s = AllReduceSeconds(bytes, 2, PipelineLink(c.cluster, c.plan, 0, 1));
  for (const int stage : {0, 1}) {
    CHECK(ReduceSeconds(costs, c.plan, c.cluster, stage) == 0);
    CHECK(SumCopiesSeconds(costs, c.plan, c.cluster, stage) ==
          Approx(copies_s + AllReduceSeconds(bytes, 2, DataLink(c.cluster, c.plan))));
  }
  CHECK(ReduceSeconds(costs, c.plan, c.cluster, 2) > 0);
  // Frozen, they have nothing to add.
  CHECK(SumCopiesSeconds(c.costs({"vision", "projector"}), c.plan, c.cluster, 0) == 0);
  c.plan.sharded = ShardedState::kOptimizer;
  CHECK(ReduceSeconds(costs, c.plan, c.cluster, 0) == 0);
  CHECK(SumCopiesSeconds(costs, c.plan, c.cluster, 0) ==
        Approx(copies_s + ReduceScatterSeconds(bytes, 2, DataLink(c.cluster, c.plan))));
  // One copy has all gradients of a layer when its last backward has made them.
  plan_of(/*ranks=*/2, {0, 20, encoder, 70, 97});
  CHECK(SumCopiesSeconds(costs, c.plan, c.cluster, 0) == 0);
  CHECK(ReduceSeconds(costs, c.plan, c.cluster, 0) > 0);
}

}  // namespace
}  // namespace equipoise
