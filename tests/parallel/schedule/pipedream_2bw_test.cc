#include "parallel/schedule/pipedream_2bw.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "parallel/schedule/builders.h"
#include "parallel/schedule/passes.h"
#include "parallel/schedule/simulate.h"
#include "parallel/schedule/validate.h"

namespace equipoise {
namespace {

StageGraph Chain(int ranks) {
  std::vector<int> rank_of_stage;
  for (int rank = 0; rank < ranks; ++rank) rank_of_stage.push_back(rank);
  return ChainGraph(rank_of_stage);
}

Schedule Middle(int ranks, int micro_batches) {
  return BuildPipeDream2Bw(Chain(ranks), micro_batches, /*begun=*/true, /*goes_on=*/true);
}

std::string ListOf(const Schedule& schedule, int rank) {
  std::string text;
  for (const Op& op : schedule.ranks[static_cast<size_t>(rank)])
    text += (text.empty() ? "" : " ") + ToString(op);
  return text;
}

// "no fault", or the first one.
std::string Fault(const Schedule& schedule) {
  const auto fault = FindFault(schedule);
  return fault ? fault->message : "no fault";
}

TEST_CASE("pipedream_2bw: two stages take turns", "[2bw]") {
  // Micro-batches 0 to 3 are of this step; 4 and 5 stand for the first two of the next.
  const Schedule middle = Middle(2, 4);
  CHECK(middle.ahead.before.forwards == std::vector<int>{1, 1});
  CHECK(middle.ahead.before.backwards == std::vector<int>{0, 0});
  CHECK(ListOf(middle, 0) == "0F1 0B0 0F2 0B1 0F3 0B2 0F4 0B3");
  CHECK(ListOf(middle, 1) == "1B0 1F1 1B1 1F2 1B2 1F3 1B3 1F4");
  CHECK(ListOf(BuildPipeDream2Bw(Chain(2), 2, false, false), 0) == "0F0 0F1 0B0 0B1");
  CHECK(ListOf(BuildPipeDream2Bw(Chain(1), 2, true, true), 0) == "0F0 0B0 0F1 0B1");
}

TEST_CASE("pipedream_2bw: a step takes half a forward a stage longer than its passes", "[2bw]") {
  for (int ranks = 2; ranks <= 16; ++ranks) {
    for (const int micro_batches : {ranks, 2 * ranks, 4 * ranks}) {
      INFO(ranks << " ranks, " << micro_batches << " micro-batches");
      const Simulation step = Simulate(Middle(ranks, micro_batches), {});
      CHECK(step.step_s == 3 * micro_batches + (ranks + 1) / 2);
      const Simulation flushed = Simulate(Build1F1B(Chain(ranks), micro_batches), {});
      CHECK(flushed.step_s == 3 * (micro_batches + ranks - 1));
    }
  }
}

TEST_CASE("pipedream_2bw: no stage keeps more than in 1F1B", "[2bw]") {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int micro_batches = 1; micro_batches <= 3 * ranks; ++micro_batches) {
      INFO(ranks << " ranks, " << micro_batches << " micro-batches");
      for (const auto& [begun, goes_on] :
           {std::pair(false, true), std::pair(true, true), std::pair(true, false)}) {
        const Schedule step = BuildPipeDream2Bw(Chain(ranks), micro_batches, begun, goes_on);
        const std::vector<double> kept = Simulate(step, {}).peak_kept_bytes;
        for (int rank = 0; rank < ranks; ++rank) {
          CHECK(kept[static_cast<size_t>(rank)] <= ranks - rank);
        }
      }
    }
  }
}

// Three steps in a row have each pass of each micro-batch once, in the order of 1F1B's kinds.
TEST_CASE("pipedream_2bw: steps in a row are complete and proved", "[2bw]") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int micro_batches = 1; micro_batches <= 2 * ranks + 1; ++micro_batches) {
      INFO(ranks << " ranks, " << micro_batches << " micro-batches");
      std::map<std::tuple<OpKind, int, int>, int> runs;
      for (int step = 0; step < 3; ++step) {
        const Schedule schedule =
            BuildPipeDream2Bw(Chain(ranks), micro_batches, step > 0, step < 2);
        for (const std::vector<Op>& list : schedule.ranks) {
          for (const Op& op : list)
            ++runs[{op.kind, op.stage, step * micro_batches + op.micro_batch}];
        }
        const Schedule whole = CompleteSchedule(schedule, {}, {});
        CHECK(Fault(whole) == "no fault");
        // Reductions wait for the step's own backwards alone.
        for (const std::vector<Op>& list : whole.ranks)
          CHECK(list.back().kind == OpKind::kOptimizer);
      }
      CHECK(runs.size() == static_cast<size_t>(2 * ranks * 3 * micro_batches));
      CHECK(std::all_of(runs.begin(), runs.end(), [](const auto& run) { return run.second == 1; }));
    }
  }
}

TEST_CASE("pipedream_2bw: reductions start before passes of the next step", "[2bw]") {
  const Schedule step = CompleteSchedule(Middle(4, 8), {}, {});
  for (size_t rank = 0; rank < step.ranks.size(); ++rank) {
    const std::vector<Op>& list = step.ranks[rank];
    const auto position = [&](const Op& op) {
      return std::find(list.begin(), list.end(), op) - list.begin();
    };
    const int stage = static_cast<int>(rank);
    const auto reduce = position({OpKind::kReduce, stage, 0});
    CHECK(reduce > position({OpKind::kBackward, stage, 7}));
    if (rank > 1) CHECK(reduce < position({OpKind::kBackward, stage, 8}));
  }
}

TEST_CASE("pipedream_2bw: frozen stages, encoders, idle micro-batches", "[2bw]") {
  StageGraph graph = Chain(4);
  graph.stages[0].encoder = true;
  graph.stages[0].needs_input_gradient = false;
  graph.stages[0].needs_weight_gradient = false;
  graph.stages[1].needs_input_gradient = GENERATE(false, true);
  constexpr int kMicroBatches = 6;
  for (const bool begun : {false, true}) {
    for (const bool goes_on : {false, true}) {
      const Schedule step = BuildPipeDream2Bw(graph, kMicroBatches, begun, goes_on);
      StepWork work;
      work.runs.assign(4, std::vector<bool>(static_cast<size_t>(step.micro_batches), true));
      for (size_t m = 0; m < work.runs[0].size(); m += 2) work.runs[0][m] = false;
      work.sends = work.runs;
      work.sends[3].assign(work.sends[3].size(), false);
      CHECK(Fault(CompleteSchedule(step, work, {})) == "no fault");
      CHECK(Fault(CompleteSchedule(step, {}, {})) == "no fault");
    }
  }
}

TEST_CASE("pipedream_2bw: what the validator sees", "[2bw]") {
  const auto remove = [](Schedule& schedule, const Op& op) {
    for (std::vector<Op>& list : schedule.ranks)
      list.erase(std::remove(list.begin(), list.end(), op), list.end());
  };
  const Schedule step = CompleteSchedule(Middle(2, 4), {}, {});
  SECTION("a pass of the step before") {
    Schedule other = step;
    other.ranks[0].insert(other.ranks[0].begin(), Op{OpKind::kForward, 0, 0});
    CHECK(Fault(other).find("it runs in the step before") != std::string::npos);
  }
  SECTION("a pass of the step after") {
    Schedule other = step;
    other.ranks[0].insert(other.ranks[0].end() - 1, Op{OpKind::kBackward, 0, 4});
    CHECK(Fault(other).find("it runs in the step after") != std::string::npos);
  }
  SECTION("a missing pass ahead") {
    Schedule other = step;
    remove(other, {OpKind::kForward, 1, 4});
    CHECK(Fault(other).find("1F4 is missing") != std::string::npos);
  }
  SECTION("a receive for the next step that is missing") {
    const Schedule four = CompleteSchedule(Middle(4, 8), {}, {});
    CHECK(Fault(four) == "no fault");
    // Stage 2 hands on what stage 3 takes in the next step.
    Schedule other = four;
    remove(other, {OpKind::kRecv, 3, 10, 2});
    CHECK(Fault(other).find("3R10<2 is missing, the other end of 2S10>3") != std::string::npos);
  }
  SECTION("counts that are too high") {
    Schedule other = step;
    other.ahead.before.forwards = {5, 0};
    CHECK(Fault(other) ==
          "passes of this step that run ahead are not given for 2 stages, 0 to 4 each");
    other = step;
    other.ahead.next = 8;
    CHECK(Fault(other) == "8 of its 8 micro-batches are of the next step; one at least is its own");
  }
}

}  // namespace
}  // namespace equipoise
