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

}  // namespace
}  // namespace equipoise
