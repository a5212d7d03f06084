#include "parallel/schedule/stage_graph.h"

#include <catch2/catch.hpp>

#include "configs/base/error.h"

namespace equipoise {
namespace {

// Two encoders on ranks 0 and 1 feed a splice stage on rank 2, which feeds rank 0 again.
StageGraph TwoEncoders() {
  return {{{.rank = 0, .next = {2}, .encoder = true},
           {.rank = 1, .next = {2}, .encoder = true},
           {.rank = 2, .next = {3}},
           {.rank = 0, .next = {}}}};
}

TEST_CASE("a chain leads from stage to stage", "[stage_graph]") {
  const StageGraph chain = ChainGraph({0, 1, 0, 1});
  REQUIRE(chain.num_stages() == 4);
  CHECK(chain.num_ranks() == 2);
  CHECK(chain.stages[0].next == std::vector<int>{1});
  CHECK(chain.stages[3].next.empty());
  CHECK(chain.Previous(0).empty());
  CHECK(chain.Previous(2) == std::vector<int>{1});
  CHECK(chain.StagesOf(0) == std::vector<int>{0, 2});
  CHECK(chain.StagesOf(1) == std::vector<int>{1, 3});
  CHECK_NOTHROW(CheckGraph(chain));
}

TEST_CASE("a graph is no chain", "[stage_graph]") {
  const StageGraph graph = TwoEncoders();
  CHECK_NOTHROW(CheckGraph(graph));
  CHECK(graph.num_ranks() == 3);
  CHECK(graph.Previous(2) == std::vector<int>{0, 1});
  CHECK(graph.StagesOf(0) == std::vector<int>{0, 3});
}

TEST_CASE("a stage has a backward where something wants a gradient", "[stage_graph]") {
  StageGraph chain = ChainGraph({0, 1, 2});
  for (int stage = 0; stage < 3; ++stage) CHECK(chain.HasBackward(stage));
  chain.stages[2].needs_weight_gradient = false;  // a frozen LLM still hands the gradient on
  CHECK(chain.HasBackward(2));
  chain.stages[0].needs_weight_gradient = false;  // nothing stands before it
  CHECK_FALSE(chain.HasBackward(0));
  CHECK(chain.HasBackward(1));
  chain.stages[1].needs_weight_gradient = false;
  CHECK(chain.HasBackward(1));
  chain.stages[1].needs_input_gradient = false;
  CHECK_FALSE(chain.HasBackward(1));
}

void CheckRefused(const StageGraph& graph, const std::string& message) {
  CHECK_THROWS_AS(CheckGraph(graph), ConfigError);
  CHECK_THROWS_WITH(CheckGraph(graph), message);
}

TEST_CASE("broken graphs are refused", "[stage_graph]") {
  CheckRefused({}, "stage 0: the graph has no stages; give one at least");
  StageGraph graph = TwoEncoders();
  graph.stages[1].next = {2, 2};
  CheckRefused(graph, "stage 1: stage 2 follows it twice; list it once");
  graph.stages[1].next = {3, 2};
  CheckRefused(graph, "stage 1: the stages after it are not in order; list them ascending");
  graph.stages[1].next = {7};
  CheckRefused(graph, "stage 1: it is followed by stage 7, which does not exist; the last is 3");
  graph.stages[1].next = {1};
  CheckRefused(graph,
               "stage 1: it is followed by stage 1; number the stages so that those after a stage "
               "have higher numbers");
  graph = TwoEncoders();
  graph.stages[2].rank = -1;
  CheckRefused(graph, "stage 2: it is on rank -1; 4 stages lie on ranks 0 to 3");
  graph.stages[2].rank = 3;
  CheckRefused(graph, "stage 3: rank 2 holds no stage; give every rank below 4 one");
  graph = TwoEncoders();
  graph.stages[3].needs_input_gradient = false;
  CheckRefused(graph,
               "stage 2: it wants a gradient that stage 3 does not make; let that one need its "
               "input gradient");
}

TEST_CASE("stages in a lane have their input there, and are an encoder's", "[stage_graph]") {
  // Two copies of an encoder with two stages each, on the tensor ranks of ranks 0 and 1.
  StageGraph graph{{{.rank = 0, .next = {1}, .encoder = true, .lane = 0},
                    {.rank = 1, .next = {4}, .encoder = true, .lane = 0},
                    {.rank = 0, .next = {3}, .encoder = true, .lane = 1},
                    {.rank = 1, .next = {4}, .encoder = true, .lane = 1},
                    {.rank = 0, .next = {5}},
                    {.rank = 1, .next = {}}}};
  CheckGraph(graph);
  CHECK(graph.num_lanes() == 2);
  CHECK(TwoEncoders().num_lanes() == 1);
  graph.stages[2].lane = 0;
  CheckRefused(graph,
               "stage 2: it is followed by stage 3 in lane 1, which does not have its output; let "
               "it feed stages of its own lane, or of none");
  graph.stages[2].lane = -1;
  CHECK_THROWS_AS(CheckGraph(graph), ConfigError);
  graph.stages[2].lane = -2;
  CheckRefused(graph,
               "stage 2: it is in lane -2; stages of an encoder have lanes, from 0 on, and no "
               "others");
  graph.stages[2].lane = 1;
  graph.stages[5].lane = 0;
  CheckRefused(graph,
               "stage 4: it is followed by stage 5 in lane 0, which does not have its output; let "
               "it feed stages of its own lane, or of none");
}

}  // namespace
}  // namespace equipoise
