#include "parallel/schedule/simulate.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/error.h"

namespace equipoise {
namespace {

Op Forward(int stage, int m) { return {OpKind::kForward, stage, m}; }
Op Backward(int stage, int m) { return {OpKind::kBackward, stage, m}; }
Op Send(int stage, int m, int peer) { return {OpKind::kSend, stage, m, peer}; }
Op Receive(int stage, int m, int peer) { return {OpKind::kRecv, stage, m, peer}; }
Op Joined(Op op) {
  op.joined = true;
  return op;
}

Schedule Chain(int micro_batches, std::vector<std::vector<Op>> ranks) {
  std::vector<int> rank_of_stage;
  for (size_t r = 0; r < ranks.size(); ++r) rank_of_stage.push_back(static_cast<int>(r));
  return {ChainGraph(rank_of_stage), micro_batches, {}, std::move(ranks)};
}

// 1F1B on two ranks; every send stands right after its op, every receive right before.
Schedule SendsNextToOps(bool joined) {
  std::vector<Op> first = {Forward(0, 0), Send(0, 0, 1)}, second;
  for (int m = 0; m < 4; ++m) {
    if (m < 3) first.insert(first.end(), {Forward(0, m + 1), Send(0, m + 1, 1)});
    const Op back = Receive(0, m, 1), next = Receive(1, m, 0);
    first.insert(first.end(), {joined && m < 3 ? Joined(back) : back, Backward(0, m)});
    second.push_back(joined && m > 0 ? Joined(next) : next);
    second.insert(second.end(), {Forward(1, m), Backward(1, m), Send(1, m, 0)});
  }
  return Chain(4, {first, second});
}

SimulationCosts SlowLink() {
  SimulationCosts costs;
  costs.bytes = [](const Op&) { return 10.0; };
  costs.link = [](int from, int) { return LinkModel{0.5, from == 0 ? 20.0 : 40.0}; };
  return costs;
}

std::string Texts(const Schedule& schedule, const std::vector<OpPlace>& places) {
  std::string text;
  for (const OpPlace& place : places) {
    text += ToString(schedule.ranks[place.rank][place.position]) + " ";
  }
  return text;
}

TEST_CASE("a micro-batch takes the time of its ops", "[simulate][cpu]") {
  const Schedule schedule =
      Chain(1, {{Forward(0, 0), Backward(0, 0)}, {Forward(1, 0), Backward(1, 0)}});
  const Simulation result = Simulate(schedule, {});
  CHECK(result.step_s == 6);
  CHECK(result.busy_s == std::vector<double>{3, 3});
  CHECK(result.bubble_share == std::vector<double>{0.5, 0.5});
  CHECK(result.start_s == std::vector<std::vector<double>>{{0, 4}, {1, 2}});
  CHECK(result.end_s == std::vector<std::vector<double>>{{1, 6}, {2, 4}});
}

TEST_CASE("a transfer takes latency and bytes over bandwidth", "[simulate][cpu]") {
  const Schedule unlisted =
      Chain(1, {{Forward(0, 0), Backward(0, 0)}, {Forward(1, 0), Backward(1, 0)}});
  const Schedule listed =
      Chain(1, {{Forward(0, 0), Send(0, 0, 1), Receive(0, 0, 1), Backward(0, 0)},
                {Receive(1, 0, 0), Forward(1, 0), Backward(1, 0), Send(1, 0, 0)}});
  for (const Schedule& schedule : {unlisted, listed}) {
    const Simulation result = Simulate(schedule, SlowLink());
    CHECK(result.step_s == 7.75);  // 1 + (0.5 + 0.5) + 1 + 2 + (0.5 + 0.25) + 2
    CHECK(result.timeline.size() == 8);
    for (const Span& span : result.timeline) {
      if (span.name == "0S0>1") CHECK(span.start_s == 1);
      if (span.name == "0R0<1") CHECK(span.end_s == 5.75);
    }
  }
}

TEST_CASE("transfers of one link follow each other, compute goes on", "[simulate][cpu]") {
  SimulationCosts costs;
  costs.link = [](int, int) { return LinkModel{3, 0}; };
  const Simulation result =
      Simulate(Chain(2, {{Forward(0, 0), Forward(0, 1), Backward(0, 0), Backward(0, 1)},
                         {Forward(1, 0), Forward(1, 1), Backward(1, 0), Backward(1, 1)}}),
               costs);
  CHECK(result.end_s[0][1] == 2);     // does not wait for the first transfer
  CHECK(result.start_s[1][0] == 4);   // 1 + 3
  CHECK(result.start_s[1][1] == 7);   // the second leaves at 4
  CHECK(result.start_s[0][2] == 13);  // 7 + 1 + 2 + 3
  CHECK(result.start_s[0][3] == 16);  // the last gradient leaves at 13
  CHECK(result.step_s == 18);
}

TEST_CASE("reductions overlap with compute, the optimizer waits for them", "[simulate][cpu]") {
  SimulationCosts costs;
  costs.seconds = [](const Op& op) { return op.kind == OpKind::kReduce ? 10.0 : 1.0; };
  const Op reduce_1{OpKind::kReduce, 1}, reduce_0{OpKind::kReduce, 0},
      optimizer{OpKind::kOptimizer};
  const Schedule schedule{ChainGraph({0, 0}),
                          1,
                          {},
                          {{Forward(0, 0), Forward(1, 0), Backward(1, 0), reduce_1, Backward(0, 0),
                            reduce_0, optimizer}}};
  const Simulation result = Simulate(schedule, costs);
  CHECK(result.start_s[0][4] == 3);   // beside the reduction of stage 1, from 3 to 13
  CHECK(result.start_s[0][5] == 13);  // one after the other
  CHECK(result.start_s[0][6] == 23);
  CHECK(result.step_s == 24);
  CHECK(result.busy_s[0] == 5);
}

TEST_CASE("activations are kept from the forward to the last backward op", "[simulate][cpu]") {
  Schedule schedule{ChainGraph({0}), 3, {}, {{}}};
  std::vector<Op>& ops = schedule.ranks[0];
  ops = {Forward(0, 0),
         Forward(0, 1),
         {OpKind::kInputGradient, 0, 0},
         Forward(0, 2),
         {OpKind::kWeightGradient, 0, 0},
         Backward(0, 1),
         Backward(0, 2)};
  CHECK(Simulate(schedule, {}).peak_kept_bytes == std::vector<double>{3});
  SimulationCosts costs;
  costs.kept_bytes = [](int, int m) { return m == 1 ? 100.0 : 10.0; };
  CHECK(Simulate(schedule, costs).peak_kept_bytes == std::vector<double>{120});
  costs.deferred_bytes = [](int, int) { return 4.0; };
  CHECK(Simulate(schedule, costs).peak_kept_bytes == std::vector<double>{114});
  costs.deferred_bytes = [](int, int) { return 30.0; };
  CHECK(Simulate(schedule, costs).peak_kept_bytes == std::vector<double>{140});
  costs.deferred_bytes = nullptr;
  // What no backward follows is not kept.
  ops = {Forward(0, 0), Backward(0, 0), Forward(0, 1), Forward(0, 2), Backward(0, 2)};
  CHECK(Simulate(schedule, costs).peak_kept_bytes == std::vector<double>{10});
}

TEST_CASE("a deadlock names the op and what it waits for", "[simulate][cpu]") {
  const Schedule schedule =
      Chain(1, {{Forward(0, 0), Backward(0, 0)}, {Backward(1, 0), Forward(1, 0)}});
  CHECK_THROWS_AS(Simulate(schedule, {}), ConfigError);
  CHECK_THROWS_WITH(Simulate(schedule, {}),
                    Catch::Contains("rank 0, op 1 (0B0) waits for 1B0 (rank 1, op 0)"));
  CHECK(StuckWithBlockingTransfers(schedule) == std::vector<OpPlace>{{0, 1}, {1, 0}});
}

TEST_CASE("sends next to their ops deadlock 1F1B when they block", "[simulate][cpu]") {
  const Schedule schedule = SendsNextToOps(/*joined=*/false);
  CHECK(Simulate(schedule, {}).step_s == 15);  // (M + P - 1)(F + B): asynchronous, it runs
  CHECK(Texts(schedule, StuckWithBlockingTransfers(schedule)) == "0S1>1 1S0>0 ");
}

TEST_CASE("joined transfers that cross are one rendezvous", "[simulate][cpu]") {
  const Schedule schedule = SendsNextToOps(/*joined=*/true);
  CHECK(StuckWithBlockingTransfers(schedule).empty());
  CHECK(Simulate(schedule, {}).step_s == 15);
}

TEST_CASE("a group waits for all of its transfers", "[simulate][cpu]") {
  // Stage 2 takes from 0 and 1, and 1 comes to its send only after something that never comes.
  Schedule schedule = Chain(1, {{Forward(0, 0), Send(0, 0, 2)},
                                {Receive(1, 0, 2), Forward(1, 0), Send(1, 0, 2)},
                                {Receive(2, 0, 0), Joined(Receive(2, 0, 1)), Forward(2, 0)}});
  schedule.graph.stages[0].next = {2};
  CHECK(Texts(schedule, StuckWithBlockingTransfers(schedule)) == "1R0<2 2R0<1 ");
}

Op Encode(int stage, int m) { return {OpKind::kEncoderForward, stage, m}; }
Op EncodeBack(int stage, int m) { return {OpKind::kEncoderBackward, stage, m}; }

// Two copies of an encoder on the tensor ranks of rank 0, one in each lane; three micro-batches.
Schedule TwoLanes(int lanes) {
  const auto lane = [lanes](int copy) { return lanes > 1 ? copy : -1; };
  Schedule schedule;
  schedule.graph.stages = {{.rank = 0, .next = {2}, .encoder = true, .lane = lane(0)},
                           {.rank = 0, .next = {2}, .encoder = true, .lane = lane(1)},
                           {.rank = 0, .next = {3}},
                           {.rank = 1, .next = {}}};
  schedule.micro_batches = 3;
  schedule.work.runs = {
      {true, false, true}, {false, true, false}, {true, true, true}, {true, true, true}};
  schedule.work.sends = schedule.work.runs;
  schedule.work.sends[3].assign(3, false);
  schedule.ranks = {{Encode(0, 0), Encode(1, 1), Encode(0, 2), Forward(2, 0), Forward(2, 1),
                     Forward(2, 2), Backward(2, 0), EncodeBack(0, 0), Backward(2, 1),
                     EncodeBack(1, 1), Backward(2, 2), EncodeBack(0, 2)},
                    {Forward(3, 0), Backward(3, 0), Forward(3, 1), Backward(3, 1), Forward(3, 2),
                     Backward(3, 2)}};
  return schedule;
}

TEST_CASE("lanes run beside each other, and what is in none waits for all", "[simulate][cpu]") {
  SimulationCosts costs;
  costs.seconds = [](const Op& op) {
    if (op.kind == OpKind::kEncoderForward) return op.stage == 0 ? 2.0 : 5.0;
    if (op.kind == OpKind::kEncoderBackward) return 4.0;
    return IsCompute(op.kind) ? 1.0 : 0.0;
  };
  const Simulation result = Simulate(TwoLanes(2), costs);
  // Lane 0 encodes 0 and 2 in 4 s, lane 1 encodes 1 in 5 s; the first forward is all tensor ranks'.
  CHECK(result.start_s[0][0] == 0);
  CHECK(result.start_s[0][1] == 0);
  CHECK(result.start_s[0][2] == 2);
  CHECK(result.start_s[0][3] == 5);
  // Backward of 0 ends at 9; lane 0 encodes backwards until 13, which holds up the backward of 1.
  CHECK(result.end_s[0][6] == 9);
  CHECK(result.end_s[0][7] == 13);
  CHECK(result.end_s[0][8] == 14);
  CHECK(result.end_s[0][9] == 18);  // in lane 1
  CHECK(result.end_s[0][10] == 19);
  CHECK(result.step_s == 23);
  CHECK(result.busy_s[0] == 6 + (2 + 2 + 5 + 4 + 4 + 4) / 2.0);
  // Of the language model 3, and of the fuller lane 2.
  CHECK(result.peak_kept_bytes[0] == 5);
  for (const Span& span : result.timeline) {
    const bool other = span.name[0] == '1';
    CHECK(span.lane.ends_with(", lane 1") == other);
  }
  CHECK(SimulateTimes(TwoLanes(1), costs).step_s > result.step_s);
  CHECK(Simulate(TwoLanes(1), costs).peak_kept_bytes[0] == 6);
}

TEST_CASE("lanes have links of their own", "[simulate][cpu]") {
  Schedule schedule;
  schedule.graph.stages = {{.rank = 0, .next = {2}, .encoder = true, .lane = 0},
                           {.rank = 0, .next = {2}, .encoder = true, .lane = 1},
                           {.rank = 1, .next = {}}};
  schedule.graph.stages[0].needs_weight_gradient = false;
  schedule.graph.stages[1].needs_weight_gradient = false;
  schedule.graph.stages[2].needs_input_gradient = false;
  schedule.micro_batches = 2;
  schedule.work.runs = {{true, false}, {false, true}, {true, true}};
  schedule.work.sends = {{true, false}, {false, true}, {false, false}};
  schedule.ranks = {{Encode(0, 0), Encode(1, 1)}, {Forward(2, 0), Forward(2, 1)}};
  SimulationCosts costs;
  costs.bytes = [](const Op&) { return 10.0; };
  costs.link = [](int, int) { return LinkModel{0, 1}; };
  const Simulation result = Simulate(schedule, costs);
  CHECK(result.start_s[1] == std::vector<double>{11, 12});
  for (StageNode& stage : schedule.graph.stages) stage.lane = -1;
  CHECK(SimulateTimes(schedule, costs).start_s[1] == std::vector<double>{11, 21});
}

}  // namespace
}  // namespace equipoise
