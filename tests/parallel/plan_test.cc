#include "parallel/plan.h"

#include <catch2/catch.hpp>
#include <vector>

#include "configs/base/json.h"
#include "configs/yaml/config_json.h"

namespace equipoise {
namespace {

Plan SomePlan() {
  Plan plan = DisaggregatedPlan({.data = 4, .pipeline = 3, .tensor = 2}, /*encoder_ranks=*/1,
                                /*encoder_layers=*/2);
  plan.sharded = ShardedState::kOptimizer;
  plan.stage_begins = {0, 2, 5, 6};
  plan.recompute = {Recompute::kNone, Recompute::kFull, Recompute::kMlp};
  return plan;
}

TEST_CASE("the fields of a plan have the keys and words of the configuration", "[plan]") {
  CHECK(ConfigToJson(SomePlan()) == Json::parse(R"({
    "data": 4, "pipeline": 3, "tensor": 2, "context": 1, "encoder": "disaggregated",
    "encoder_ranks": 1, "encoder_chunks": 1, "encoder_tensor": 2, "schedule": "1f1b", "chunks": 1,
    "zero": 1, "zero_ranks": 0, "sequence": false, "stage_layers": [2, 3, 1],
    "recompute_layers": ["none", "full", "mlp"]})"));
  CHECK(ConfigToJson(Plan())["encoder_ranks"] == 0);
  CHECK(ConfigToJson(Plan())["stage_layers"] == Json::array());
}

TEST_CASE("a stage of ZeRO shards what the stages before it shard", "[plan]") {
  Plan plan = SomePlan();
  CHECK(plan.IsSharded(ShardedState::kOptimizer));
  CHECK_FALSE(plan.IsSharded(ShardedState::kGradients));
  CHECK(plan.shards() == 4);
  plan.zero_ranks = 2;
  CHECK(plan.shards() == 2);
  plan.sharded = ShardedState::kParameters;
  CHECK(plan.IsSharded(ShardedState::kGradients));
  plan.sharded = ShardedState::kNone;
  CHECK(plan.shards() == 1);
  for (int stage = 0; stage <= 3; ++stage) CHECK(ZeroStage(ShardedStateOf(stage)) == stage);
}

TEST_CASE("a plan's mesh has tensor ranks as neighbours", "[plan]") {
  const Mesh mesh = SomePlan().mesh;
  CHECK(mesh.size() == SomePlan().num_ranks());
  CHECK(mesh.Group(0, Axis::kTensor) == std::vector<int>{0, 1});
  CHECK(mesh.Group(0, Axis::kPipeline) == std::vector<int>{0, 2, 4});
  CHECK(mesh.Group(0, Axis::kData) == std::vector<int>{0, 6, 12, 18});
}

TEST_CASE("a disaggregated encoder is a component with a mesh of its own", "[plan]") {
  const Plan plan = DisaggregatedPlan({.data = 2, .pipeline = 5, .tensor = 2}, /*encoder_ranks=*/2,
                                      /*encoder_layers=*/7, /*chunks=*/2, Placement::kV);
  REQUIRE(plan.components.size() == 2);
  const PlanComponent &encoder = plan.components[0], &text = plan.components[1];
  CHECK(encoder.encoder);
  CHECK(encoder.mesh == plan.mesh.Slice(Axis::kPipeline, 0, 2));
  CHECK(text.first_layer == 7);
  CHECK(text.mesh.size() == 2 * 3 * 2);
  // Together they hold each rank of the plan once.
  for (int rank = 0; rank < plan.num_ranks(); ++rank)
    CHECK(encoder.mesh.Holds(rank) != text.mesh.Holds(rank));
  CHECK(plan.encoder_ranks() == 2);
  CHECK(plan.num_stages() == 2 + 3 * 2);
  std::vector<int> ranks;
  for (int stage = 0; stage < plan.num_stages(); ++stage) {
    ranks.push_back(plan.RankOfStage(stage));
    CHECK(plan.ComponentOfStage(stage).encoder == (stage < 2));
  }
  CHECK(ranks == std::vector<int>{0, 1, 2, 3, 4, 4, 3, 2});
  CHECK(plan.StagesOf(1) == std::vector<int>{1});
  CHECK(plan.StagesOf(2) == std::vector<int>{2, 7});
}

TEST_CASE("an encoder in the bubbles has copies on the ranks of the language model", "[plan]") {
  Plan plan = PlanInBubbles({.data = 2, .pipeline = 4, .tensor = 3},
                            {EncoderPlacement::kOptimus, /*ranks=*/2, /*chunks=*/3, /*layers=*/7},
                            /*chunks=*/2);
  plan.stage_begins = {0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const PlanComponent &encoder = plan.components[0], &text = plan.components[1];
  CHECK(text.mesh == plan.mesh);
  CHECK(text.first_layer == 7);
  CHECK(plan.encoder_copies() == 2);
  // A copy's ranks are neighbours along the pipeline, and have the same tensor group.
  CHECK(encoder.mesh.size(Axis::kData) == 4);
  for (int rank = 0; rank < plan.num_ranks(); ++rank) {
    CHECK(encoder.mesh.Group(rank, Axis::kTensor) == plan.mesh.Group(rank, Axis::kTensor));
    CHECK(encoder.mesh.Coordinate(rank, Axis::kData) ==
          2 * plan.mesh.Coordinate(rank, Axis::kData) +
              plan.mesh.Coordinate(rank, Axis::kPipeline) / 2);
  }
  REQUIRE(plan.num_stages() == 2 * 6 + 8);
  std::vector<int> ranks, next;
  for (int stage = 0; stage < plan.num_stages(); ++stage) {
    ranks.push_back(plan.RankOfStage(stage));
    next.push_back(plan.NextStage(stage));
  }
  CHECK(ranks == std::vector<int>{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 1, 2, 3, 0, 1, 2, 3});
  CHECK(next ==
        std::vector<int>{1, 2, 3, 4, 5, 12, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, -1});
  CHECK(plan.StagesOf(2) == std::vector<int>{6, 7, 8, 14, 18});
  for (const int stage : {5, 11}) {
    CHECK(plan.LayersOf(stage).begin == 5);
    CHECK(plan.LayersOf(stage).end == 7);
    CHECK(plan.CopyOf(stage) == stage / 6);
  }
  CHECK(plan.LayersOf(12).begin == 7);
  CHECK(plan.CopyOf(12) == 0);
}

TEST_CASE("copies of an encoder with fewer tensor ranks lie side by side on these", "[plan]") {
  Plan plan = PlanInBubbles({.data = 2, .pipeline = 4, .tensor = 4},
                            {EncoderPlacement::kDep, /*ranks=*/2, /*chunks=*/1, /*layers=*/4,
                             /*tensor=*/2});
  plan.stage_begins = {0, 2, 4, 5, 6, 7, 8};
  CHECK(plan.encoder_tensor() == 2);
  CHECK(plan.encoder_lanes() == 2);
  CHECK(plan.encoder_copies() == 4);
  REQUIRE(plan.num_stages() == 4 * 2 + 4);
  std::vector<int> ranks, lanes, copies;
  for (int stage = 0; stage < 8; ++stage) {
    ranks.push_back(plan.RankOfStage(stage));
    lanes.push_back(plan.LaneOf(stage));
    copies.push_back(plan.CopyOf(stage));
    CHECK(plan.NextStage(stage) == (stage % 2 == 0 ? stage + 1 : 8));
  }
  CHECK(ranks == std::vector<int>{0, 1, 0, 1, 2, 3, 2, 3});
  CHECK(lanes == std::vector<int>{0, 0, 1, 1, 0, 0, 1, 1});
  CHECK(copies == std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3});
  CHECK(plan.LaneOf(8) == -1);
  CHECK(plan.StagesOf(1) == std::vector<int>{1, 9});
  CHECK(plan.StagesOf(1, 1) == std::vector<int>{3, 9});
  CHECK(DescribeAxes(plan) ==
        "data 2 x pipeline 4 x tensor 4, encoder dep on 4 x 2 ranks x tensor 2");
  // As many as the language model has: no lanes.
  const Plan whole =
      PlanInBubbles({.pipeline = 2, .tensor = 2}, {EncoderPlacement::kDep, 1, 1, 4, 2});
  CHECK(whole == PlanInBubbles({.pipeline = 2, .tensor = 2}, {EncoderPlacement::kDep, 1, 1, 4}));
}

TEST_CASE("an inline plan is one component on all ranks", "[plan]") {
  const Plan plan = InlinePlan({.data = 2, .pipeline = 3}, /*chunks=*/2);
  REQUIRE(plan.components.size() == 1);
  CHECK(plan.components[0].mesh == plan.mesh);
  CHECK(plan.encoder_ranks() == 0);
  CHECK(plan.StagesOf(1) == std::vector<int>{1, 4});
  CHECK(Plan() == InlinePlan({}));
}

}  // namespace
}  // namespace equipoise
