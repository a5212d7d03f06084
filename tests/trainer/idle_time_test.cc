#include "trainer/doctor/idle_time.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "parallel/schedule/builders.h"
#include "parallel/schedule/passes.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {
namespace {

Mesh MeshOfRanks(int data, int pipeline) {
  return Mesh({{Axis::kData, data}, {Axis::kPipeline, pipeline}});
}

// Spans of a step as a run records them: "compute 1 0F0 2 4" is rank 1's, from 2 to 4 seconds.
TracedStep Step(double end_s, Timeline spans) {
  spans.push_back({0, "step", "step 2", 0, end_s});
  return StepsOf(spans).front();
}

// Whatever its causes are, a rank's time is all of the step.
void CheckAddsUp(const IdleTable& table) {
  for (const RankIdle& rank : table.ranks) {
    CHECK(rank.compute_s + rank.update_s + rank.idle() == Approx(table.step_s));
    for (const double seconds : rank.idle_s) CHECK(seconds >= -1e-9);
  }
}

TracedStep Simulated(const std::string& schedule, int ranks, int micro_batches,
                     const SimulationCosts& costs = {}, int chunks = 1) {
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < ranks * chunks; ++stage) rank_of_stage.push_back(stage % ranks);
  const Schedule built = BuildSchedule(schedule, ChainGraph(rank_of_stage), micro_batches);
  return StepsOf(Simulate(CompleteSchedule(built, {}, costs), costs).timeline).front();
}

TEST_CASE("a simulated 1F1B waits as its formula says", "[doctor][cpu]") {
  // Forwards take 1, backwards 2, ranks 4: (P - 1)(F + B) of waiting on every rank.
  const IdleTable table = AttributeIdle(Simulated("1f1b", 4, 8), MeshOfRanks(1, 4));
  CheckAddsUp(table);
  CHECK(table.step_s == Approx(33));
  for (int rank = 0; rank < 4; ++rank) {
    const RankIdle& idle = table.ranks[static_cast<size_t>(rank)];
    INFO(rank);
    CHECK(idle.compute_s == Approx(24));
    CHECK(idle[IdleCause::kWarmUp] == Approx(rank));
    CHECK(idle[IdleCause::kCoolDown] == Approx(2 * rank));
    CHECK(idle[IdleCause::kPipelineOther] == Approx(9 - 3 * rank));
  }
}

TEST_CASE("an uneven stage is imbalance on the others", "[doctor][cpu]") {
  SimulationCosts costs;
  costs.seconds = [](const Op& op) {
    if (!IsCompute(op.kind)) return 0.0;
    return (op.stage == 1 ? 3.0 : 1.0) * (IsForward(op.kind) ? 1 : 2);
  };
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1"}) {
    const IdleTable table = AttributeIdle(Simulated(schedule, 2, 6, costs), MeshOfRanks(1, 2));
    INFO(schedule);
    CheckAddsUp(table);
    CHECK(table.Largest().front() == IdleCause::kUnevenStages);
    CHECK(table.ranks[0][IdleCause::kUnevenStages] >
          0.9 * (table.ranks[1].compute_s - table.ranks[0].compute_s));
    CHECK(table.ranks[1][IdleCause::kUnevenStages] == 0);
    CHECK(table.slowest == -1);
  }
}

TEST_CASE("the same with a prediction is a slow rank or a cut", "[doctor][cpu]") {
  SimulationCosts costs;
  costs.seconds = [](const Op& op) {
    return !IsCompute(op.kind) ? 0.0 : (op.stage == 1 ? 3.0 : 1.0);
  };
  const TracedStep step = Simulated("1f1b", 2, 6, costs);
  const IdleTable cut = AttributeIdle(step, MeshOfRanks(1, 2), {1, 3});
  CHECK(cut.Largest().front() == IdleCause::kUnevenStages);
  CHECK(cut.slowest == -1);
  const IdleTable slow = AttributeIdle(step, MeshOfRanks(1, 2), {10, 10});
  CheckAddsUp(slow);
  CHECK(slow.Largest().front() == IdleCause::kSlowRank);
  CHECK(slow.slowest == 1);
  CHECK(slow.slowdown == Approx(3));
}

TEST_CASE("all ranks wait for one rank's loader", "[doctor][cpu]") {
  // Rank 0 waits 6 of 7 seconds inside its first pass; rank 1 waits for what rank 0 sends.
  const TracedStep step = Step(20, {{0, "compute", "0F0", 1, 8},
                                    {0, "data", "wait 0", 1, 7},
                                    {0, "communication", "0S0>1", 8, 8.5},
                                    {1, "communication", "1R0<0", 1, 8.5},
                                    {1, "compute", "1F0", 9, 11},
                                    {1, "compute", "1B0", 11, 15},
                                    {1, "communication", "1S0>0", 15, 15},
                                    {0, "communication", "0R0<1", 8, 15},
                                    {0, "compute", "0B0", 15, 17},
                                    {0, "compute", "OPT", 18, 20},
                                    {1, "compute", "OPT", 18, 19}});
  const IdleTable table = AttributeIdle(step, MeshOfRanks(1, 2));
  CheckAddsUp(table);
  CHECK(table.Largest().front() == IdleCause::kDataWait);
  CHECK(table.ranks[0][IdleCause::kDataWait] == Approx(6));
  CHECK(table.ranks[1][IdleCause::kDataWait] == Approx(6));
  CHECK(table.ranks[0].compute_s == Approx(3));
  CHECK(table.ranks[1].compute_s == Approx(6));
  CHECK(table.ranks[0].update_s == Approx(2));
  // Rank 0 has 3 seconds less to do: 3 of its 6.5 between its passes; 0.5 more rank 1 does nothing.
  CHECK(table.ranks[0][IdleCause::kUnevenStages] == Approx(3));
  CHECK(table.ranks[0][IdleCause::kPipelineOther] == Approx(3.5));
  CHECK(table.ranks[1][IdleCause::kWarmUp] == Approx(1));
  CHECK(table.ranks[1][IdleCause::kPipelineOther] == Approx(0.5));  // the transfer
  CHECK(table.ranks[1][IdleCause::kCoolDown] == Approx(2));
  CHECK(table.ranks[1][IdleCause::kHost] == Approx(1 + 0.5 + 1 + 1));
}

TEST_CASE("a data rank that waits at the end for one whose loader was late waits for data",
          "[doctor][cpu]") {
  const IdleTable alone = AttributeIdle(Step(7, {{0, "compute", "0F0", 0, 4},
                                                 {0, "compute", "OPT", 6, 7},
                                                 {1, "data", "wait 0", 0, 2},
                                                 {1, "compute", "0F0", 2, 6},
                                                 {1, "compute", "OPT", 6, 7}}),
                                        MeshOfRanks(2, 1));
  CheckAddsUp(alone);
  for (const RankIdle& rank : alone.ranks) {
    CHECK(rank[IdleCause::kDataWait] == Approx(2));
    CHECK(rank[IdleCause::kCoolDown] == 0);
    CHECK(rank.idle() == Approx(2));
  }
  // The same with a pipeline, of which the last rank cools down in any case.
  Timeline spans = {{2, "data", "wait 0", 0, 2}};
  for (const int data : {0, 1}) {
    const int first = 2 * data, last = first + 1;
    const double late = 2 * data;
    const Timeline pipeline = {{first, "compute", "0F0", late, late + 2},
                               {first, "communication", "0S0>1", late + 2, late + 2},
                               {last, "communication", "1R0<0", 0, late + 2},
                               {last, "compute", "1F0", late + 2, late + 4},
                               {last, "compute", "1B0", late + 4, late + 8},
                               {last, "communication", "1S0>0", late + 8, late + 8},
                               {first, "communication", "0R0<1", late + 2, late + 8},
                               {first, "compute", "0B0", late + 8, late + 12}};
    spans.insert(spans.end(), pipeline.begin(), pipeline.end());
  }
  const IdleTable piped = AttributeIdle(Step(14, spans), MeshOfRanks(2, 2));
  CheckAddsUp(piped);
  for (int rank = 0; rank < 4; ++rank) {
    INFO(rank);
    const RankIdle& idle = piped.ranks[static_cast<size_t>(rank)];
    CHECK(idle[IdleCause::kDataWait] == Approx(2));
    CHECK(idle[IdleCause::kCoolDown] == Approx(rank % 2 == 0 ? 0 : 4).margin(1e-9));
  }
}

TEST_CASE("data ranks wait for the one with more work, then for the sum", "[doctor][cpu]") {
  Timeline spans = {{0, "compute", "0F0", 0, 1},
                    {0, "compute", "0B0", 1, 3},
                    {0, "communication", "reduce bucket 0", 3, 9},
                    {1, "communication", "reduce bucket 0", 7, 8.5},
                    {0, "compute", "OPT", 9, 10},
                    {1, "compute", "0F0", 0, 2},
                    {1, "compute", "0B0", 2, 7},
                    {1, "compute", "OPT", 9, 10}};
  const TracedStep step = Step(10, spans);
  const IdleTable uneven = AttributeIdle(step, MeshOfRanks(2, 1), {3, 7});
  CheckAddsUp(uneven);
  CHECK(uneven.ranks[0][IdleCause::kUnevenData] == Approx(4));
  CHECK(uneven.ranks[0][IdleCause::kReduceScatter] == Approx(2));
  CHECK(uneven.ranks[1][IdleCause::kReduceScatter] == Approx(1.5));
  CHECK(uneven.ranks[1][IdleCause::kHost] == Approx(0.5));
  const IdleTable slow = AttributeIdle(step, MeshOfRanks(2, 1), {3, 3});
  CheckAddsUp(slow);
  CHECK(slow.ranks[0][IdleCause::kSlowRank] == Approx(4));
  CHECK(slow.slowest == 1);
}

TEST_CASE("every schedule's idle time adds up", "[doctor][cpu]") {
  SimulationCosts costs;
  costs.seconds = [](const Op& op) {
    if (op.kind == OpKind::kReduce) return 0.7;
    if (op.kind == OpKind::kOptimizer) return 0.3;
    return 1.0 + 0.25 * ((7 * op.stage + 3 * op.micro_batch) % 4);
  };
  costs.bytes = [](const Op&) { return 1.0; };
  costs.link = [](int, int) { return LinkModel{0.1, 10}; };
  for (const char* schedule : {"naive", "gpipe", "1f1b", "zb_h1"}) {
    for (const int ranks : {1, 2, 5}) {
      INFO(schedule << " " << ranks);
      CheckAddsUp(AttributeIdle(Simulated(schedule, ranks, 7, costs), MeshOfRanks(1, ranks)));
    }
  }
  CheckAddsUp(AttributeIdle(Simulated("interleaved", 3, 7, costs, 2), MeshOfRanks(1, 3)));
}

TEST_CASE("an encoder on a stream of its own fills what other passes leave", "[doctor][cpu]") {
  const Timeline spans = {
      {0, "compute", "1F0", 2, 4},          {0, "compute", "1B0", 6, 9},
      {0, "compute, encoder", "0V0", 0, 1}, {0, "compute, encoder", "0V1", 1, 3},
      {0, "compute, encoder", "0U0", 3, 7}, {0, "compute", "OPT", 9, 10}};
  const IdleTable table = AttributeIdle(Step(10, spans), MeshOfRanks(1, 1));
  CheckAddsUp(table);
  CHECK(table.ranks[0].compute_s == Approx(9));
  CHECK(table.ranks[0].update_s == Approx(1));
  CHECK(table.ranks[0].idle() == Approx(0).margin(1e-9));
}

TEST_CASE("steps are told by their spans; the mean is over them", "[doctor][cpu]") {
  Timeline spans;
  for (int step = 0; step < 3; ++step) {
    const double at = 10 * step;
    spans.push_back({0, "step", "step " + std::to_string(step + 1), at, at + 4 + step});
    spans.push_back({0, "compute", "0F0", at + 1, at + 3});
    spans.push_back({0, "compute", "0F0", at + 8, at + 9});  // of an evaluation
  }
  const std::vector<TracedStep> steps = StepsOf(spans);
  REQUIRE(steps.size() == 3);
  std::vector<IdleTable> tables;
  for (const TracedStep& step : steps) tables.push_back(AttributeIdle(step, MeshOfRanks(1, 1)));
  const IdleTable mean = MeanOf(tables);
  CHECK(mean.step_s == Approx(5));
  CHECK(mean.steps == 3);
  CHECK(mean.ranks[0].compute_s == Approx(2));
  CHECK(mean.ranks[0][IdleCause::kHost] == Approx(3));
}

}  // namespace
}  // namespace equipoise
