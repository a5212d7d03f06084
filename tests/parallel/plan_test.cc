#include "parallel/plan.h"

#include <catch2/catch.hpp>
#include <vector>

#include "configs/base/json.h"
#include "configs/yaml/config_json.h"

namespace equipoise {
namespace {

Plan SomePlan() {
  Plan plan;
  plan.data = 4, plan.pipeline = 3, plan.tensor = 2;
  plan.encoder_ranks = 1;
  plan.sharded = ShardedState::kOptimizer;
  plan.stage_begins = {0, 2, 5, 6};
  plan.recompute = {Recompute::kNone, Recompute::kFull, Recompute::kMlp};
  return plan;
}

TEST_CASE("the fields of a plan have the keys and words of the configuration", "[plan]") {
  CHECK(ConfigToJson(SomePlan()) == Json::parse(R"({
    "data": 4, "pipeline": 3, "tensor": 2, "encoder_ranks": 1, "schedule": "1f1b", "chunks": 1,
    "zero": 1, "stage_layers": [2, 3, 1], "recompute_layers": ["none", "full", "mlp"]})"));
  CHECK(ConfigToJson(Plan())["encoder_ranks"] == 0);
  CHECK(ConfigToJson(Plan())["stage_layers"] == Json::array());
}

TEST_CASE("a stage of ZeRO shards what the stages before it shard", "[plan]") {
  Plan plan = SomePlan();
  CHECK(plan.IsSharded(ShardedState::kOptimizer));
  CHECK_FALSE(plan.IsSharded(ShardedState::kGradients));
  CHECK(plan.optimizer_shards() == 4);
  plan.sharded = ShardedState::kParameters;
  CHECK(plan.IsSharded(ShardedState::kGradients));
  plan.sharded = ShardedState::kNone;
  CHECK(plan.optimizer_shards() == 1);
  for (int stage = 0; stage <= 3; ++stage) CHECK(ZeroStage(ShardedStateOf(stage)) == stage);
}

TEST_CASE("a plan's mesh has tensor ranks as neighbours", "[plan]") {
  const Mesh mesh = SomePlan().mesh();
  CHECK(mesh.size() == SomePlan().num_ranks());
  CHECK(mesh.Group(0, Axis::kTensor) == std::vector<int>{0, 1});
  CHECK(mesh.Group(0, Axis::kPipeline) == std::vector<int>{0, 2, 4});
  CHECK(mesh.Group(0, Axis::kData) == std::vector<int>{0, 6, 12, 18});
}

}  // namespace
}  // namespace equipoise
