#include "parallel/schedule/passes.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "configs/base/error.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/validate.h"

namespace equipoise {
namespace {

std::string ListText(const std::vector<Op>& list) {
  std::string text;
  for (const Op& op : list) text += (text.empty() ? "" : op.joined ? "+" : " ") + ToString(op);
  return text;
}

std::vector<std::string> Texts(const Schedule& schedule) {
  std::vector<std::string> texts;
  for (const std::vector<Op>& list : schedule.ranks) texts.push_back(ListText(list));
  return texts;
}

StageGraph Chain(int ranks, int chunks = 1, Placement placement = Placement::kLoop) {
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < ranks * chunks; ++stage)
    rank_of_stage.push_back(RankOfPlace(placement, stage, ranks));
  return ChainGraph(rank_of_stage);
}

// The encoder on its own rank: encoder -> splice stage -> LLM stage.
StageGraph EncoderRank() {
  StageGraph graph = Chain(3);
  graph.stages[0].encoder = true;
  return graph;
}

// Two encoders on ranks of their own, the first in two stages, and two LLM stages.
StageGraph TwoEncoders() {
  return {{{.rank = 0, .next = {1}, .encoder = true},
           {.rank = 1, .next = {3}, .encoder = true},
           {.rank = 2, .next = {3}, .encoder = true},
           {.rank = 3, .next = {4}},
           {.rank = 4, .next = {}}}};
}

// A chain of encoders on the first ranks, then chunks on the others in turn.
StageGraph EncodersBeforeChunks(int encoders, int ranks, int chunks,
                                Placement placement = Placement::kLoop) {
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < encoders; ++stage) rank_of_stage.push_back(stage);
  for (int i = 0; i < ranks * chunks; ++i)
    rank_of_stage.push_back(encoders + RankOfPlace(placement, i, ranks));
  StageGraph graph = ChainGraph(rank_of_stage);
  for (int stage = 0; stage < encoders; ++stage) graph.stages[stage].encoder = true;
  return graph;
}

StageGraph Frozen(StageGraph graph, int stages) {
  for (int stage = 0; stage <= stages; ++stage) graph.stages[stage].needs_input_gradient = false;
  for (int stage = 0; stage < stages; ++stage) graph.stages[stage].needs_weight_gradient = false;
  return graph;
}

// Every op its own time, some of them none.
SimulationCosts RandomCosts(unsigned seed) {
  auto random = std::make_shared<std::mt19937>(seed);
  auto known = std::make_shared<std::map<Op, double>>();
  SimulationCosts costs;
  costs.seconds = [=](const Op& op) {
    return known->try_emplace(op, (*random)() % 8 * 0.37).first->second;
  };
  costs.link = [](int, int) { return LinkModel{0.11, 0}; };
  return costs;
}

StepWork RandomWork(const Schedule& schedule, unsigned seed) {
  std::mt19937 random(seed);
  const auto table = [&] {
    std::vector<std::vector<bool>> rows(schedule.graph.num_stages());
    for (auto& row : rows) {
      for (int m = 0; m < schedule.micro_batches; ++m) row.push_back(random() % 4 != 0);
    }
    return rows;
  };
  StepWork work;
  work.runs = table();
  work.sends = table();
  return work;
}

std::vector<Op> Kept(const std::vector<Op>& list, bool (*wanted)(OpKind)) {
  std::vector<Op> kept;
  std::copy_if(list.begin(), list.end(), std::back_inserter(kept),
               [&](const Op& op) { return wanted(op.kind); });
  return kept;
}

// What holds for every completed schedule, said without the passes' own words.
void CheckCompleted(const Schedule& built, const Schedule& completed) {
  const auto fault = FindFault(completed);
  CHECK((fault ? fault->message : "") == "");
  CHECK(StuckWithBlockingTransfers(completed).empty());
  REQUIRE(completed.ranks.size() == built.ranks.size());
  std::map<Op, int> transfers;
  for (size_t rank = 0; rank < built.ranks.size(); ++rank) {
    const std::vector<Op> compute = Kept(completed.ranks[rank], IsCompute);
    auto rest = compute.begin();
    for (const Op& op : built.ranks[rank]) {
      const bool kept = completed.work.Runs(op.stage, op.micro_batch) &&
                        (IsForward(op.kind) || completed.graph.HasBackward(op.stage));
      if (!kept) continue;
      REQUIRE(rest != compute.end());
      CHECK(*rest++ == op);
    }
    CHECK(rest == compute.end());
    for (Op op : Kept(completed.ranks[rank], IsTransfer)) {
      op.joined = false;
      CHECK(completed.graph.stages[op.stage].rank == static_cast<int>(rank));
      CHECK(++transfers[op] == 1);
    }
    CHECK(completed.ranks[rank].back().kind == OpKind::kOptimizer);
  }
  size_t values = 0;
  for (int m = 0; m < completed.micro_batches; ++m) {
    for (int from = 0; from < completed.graph.num_stages(); ++from) {
      for (const int to : completed.graph.stages[from].next) {
        if (completed.graph.stages[from].rank == completed.graph.stages[to].rank) continue;
        if (!completed.work.Sends(from, m) || !completed.work.Runs(to, m)) continue;
        ++values;
        CHECK(transfers.count({OpKind::kSend, from, m, to}) == 1);
        CHECK(transfers.count({OpKind::kRecv, to, m, from}) == 1);
        if (!completed.graph.HasBackward(from)) continue;
        ++values;
        CHECK(transfers.count({OpKind::kSend, to, m, from}) == 1);
        CHECK(transfers.count({OpKind::kRecv, from, m, to}) == 1);
      }
    }
  }
  CHECK(transfers.size() == 2 * values);
}

TEST_CASE("each transfer has one place in the order of time", "[passes]") {
  const Schedule built = BuildSchedule("1f1b", Chain(2), 2);
  CHECK(Texts(CompleteSchedule(built, {}, {})) ==
        std::vector<std::string>{"0F0 0S0>1 0F1 0S1>1 0R0<1 0B0 0R1<1 0B1 0REDUCE OPT",
                                 "1R0<0 1F0 1R1<0 1B0 1S0>0 1F1 1B1 1S1>0 1REDUCE OPT"});
}

TEST_CASE("transfers that cross in one slot are joined", "[passes]") {
  SimulationCosts costs;
  costs.seconds = [](const Op& op) { return IsCompute(op.kind) ? 1.0 : 0.0; };
  CHECK(Texts(AddTransfers(BuildSchedule("1f1b", Chain(2), 3), costs)) ==
        std::vector<std::string>{"0F0 0S0>1 0F1 0S1>1 0R0<1 0B0 0F2 0S2>1+0R1<1 0B1 0R2<1 0B2",
                                 "1R0<0 1F0 1R1<0 1B0 1S0>0 1F1 1B1 1R2<0+1S1>0 1F2 1B2 1S2>0"});
}

TEST_CASE("transfers beside their ops would deadlock", "[passes]") {
  for (const auto& [name, chunks] : {std::pair("1f1b", 1), std::pair("interleaved", 2)}) {
    Schedule schedule = BuildSchedule(name, Chain(2, chunks), 4);
    CheckCompleted(schedule, CompleteSchedule(schedule, {}, {}));
    for (std::vector<Op>& list : schedule.ranks) {
      std::vector<Op> listed;
      for (const Op& op : list) {
        const int step = IsForward(op.kind) ? 1 : -1;
        const auto exists = [&](int stage) { return stage >= 0 && stage < 2 * chunks; };
        if (exists(op.stage - step)) {
          listed.push_back({OpKind::kRecv, op.stage, op.micro_batch, op.stage - step});
        }
        listed.push_back(op);
        if (exists(op.stage + step)) {
          listed.push_back({OpKind::kSend, op.stage, op.micro_batch, op.stage + step});
        }
      }
      list = listed;
    }
    CHECK_FALSE(StuckWithBlockingTransfers(schedule).empty());
  }
}

TEST_CASE("every schedule completes, whatever the times and the work", "[passes]") {
  unsigned seed = 0;
  for (const ScheduleKind& kind : ScheduleKinds()) {
    const std::string& name = kind.name;
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (const int micro_batches : {1, 2, 3, 4, 7, 8, 16}) {
        for (int chunks = 1; chunks <= 4; ++chunks) {
          StageGraph graph = Chain(ranks, chunks, kind.placement);
          if (chunks > kind.most_chunks || !kind.problem(graph).empty()) continue;
          CAPTURE(name, ranks, micro_batches, chunks, seed);
          graph = Frozen(graph, static_cast<int>(seed % std::min(graph.num_stages(), 3)));
          const Schedule built = BuildSchedule(name, graph, micro_batches);
          ++seed;
          CheckCompleted(built, CompleteSchedule(built, {}, {}));
          CheckCompleted(built, CompleteSchedule(built, {}, RandomCosts(seed)));
          CheckCompleted(built,
                         CompleteSchedule(built, RandomWork(built, seed), RandomCosts(seed)));
        }
      }
    }
  }
}

TEST_CASE("graphs that are no chain complete", "[passes]") {
  unsigned seed = 0;
  for (const StageGraph& graph :
       {EncoderRank(), TwoEncoders(), Frozen(EncoderRank(), 1), EncodersBeforeChunks(1, 2, 2),
        EncodersBeforeChunks(2, 3, 3), Frozen(EncodersBeforeChunks(1, 3, 2), 1),
        EncodersBeforeChunks(2, 3, 2, Placement::kV)}) {
    for (const ScheduleKind& kind : ScheduleKinds()) {
      const std::string& name = kind.name;
      if (!kind.problem(graph).empty()) continue;
      for (int micro_batches = 1; micro_batches <= 9; ++micro_batches) {
        CAPTURE(graph.num_stages(), name, micro_batches, seed);
        const Schedule built = BuildSchedule(name, graph, micro_batches);
        ++seed;
        CheckCompleted(built, CompleteSchedule(built, {}, {}));
        CheckCompleted(built, CompleteSchedule(built, RandomWork(built, seed), RandomCosts(seed)));
      }
    }
  }
}

TEST_CASE("a splice stage takes from both its encoders", "[passes]") {
  const Schedule schedule = CompleteSchedule(BuildSchedule("gpipe", TwoEncoders(), 1), {}, {});
  CHECK(Texts(schedule) ==
        std::vector<std::string>{"0V0 0S0>1 0R0<1 0U0 0REDUCE OPT",
                                 "1R0<0 1V0 1S0>3 1R0<3 1U0 1S0>0 1REDUCE OPT",
                                 "2V0 2S0>3 2R0<3 2U0 2REDUCE OPT",
                                 "3R0<2 3R0<1 3F0 3S0>4 3R0<4 3B0 3S0>1 3S0>2 3REDUCE OPT",
                                 "4R0<3 4F0 4B0 4S0>3 4REDUCE OPT"});
}

TEST_CASE("frozen first stages run forward only", "[passes]") {
  const Schedule built = BuildSchedule("1f1b", Frozen(Chain(3), 2), 2);
  CHECK(Texts(CompleteSchedule(built, {}, {})) ==
        std::vector<std::string>{"0F0 0S0>1 0F1 0S1>1 OPT", "1R0<0 1F0 1R1<0 1S0>2 1F1 1S1>2 OPT",
                                 "2R0<1 2F0 2R1<1 2B0 2F1 2B1 2REDUCE OPT"});
}

TEST_CASE("a frozen stage behind trainable ones hands the gradient on", "[passes]") {
  StageGraph graph = Chain(2);
  graph.stages[1].needs_weight_gradient = false;
  CHECK(Texts(CompleteSchedule(BuildSchedule("gpipe", graph, 1), {}, {})) ==
        std::vector<std::string>{"0F0 0S0>1 0R0<1 0B0 0REDUCE OPT", "1R0<0 1F0 1B0 1S0>0 OPT"});
}

TEST_CASE("micro-batches without pictures leave the vision stage idle", "[passes]") {
  StepWork work;
  work.runs = {{false, true}, {true, true}};
  work.sends = {{false, true}, {true, true}};
  const Schedule built = BuildSchedule("gpipe", Chain(2), 2);
  CHECK(Texts(CompleteSchedule(built, work, {})) ==
        std::vector<std::string>{"0F1 0S1>1 0R1<1 0B1 0REDUCE OPT",
                                 "1F0 1R1<0 1F1 1B0 1B1 1S1>0 1REDUCE OPT"});
  work.runs[0] = work.sends[0] = {false, false};
  CHECK(Texts(CompleteSchedule(built, work, {})) ==
        std::vector<std::string>{"0REDUCE OPT", "1F0 1F1 1B0 1B1 1REDUCE OPT"});
}

TEST_CASE("weight gradients of frozen stages are left out", "[passes]") {
  Schedule schedule{ChainGraph({0, 0}), 1, {}, {{}}};
  schedule.graph.stages[1].needs_weight_gradient = false;
  schedule.ranks[0] = {{OpKind::kForward, 0, 0},       {OpKind::kForward, 1, 0},
                       {OpKind::kInputGradient, 1, 0}, {OpKind::kWeightGradient, 1, 0},
                       {OpKind::kInputGradient, 0, 0}, {OpKind::kWeightGradient, 0, 0}};
  CHECK(Texts(DropIdleOps(schedule, {})) == std::vector<std::string>{"0F0 1F0 1I0 0I0 0W0"});
}

TEST_CASE("a rank reduces its stages in descending order", "[passes]") {
  const Schedule built = BuildSchedule("interleaved", Chain(2, 3), 4);
  const auto reductions = [](const Schedule& schedule, int rank) {
    return ListText(Kept(schedule.ranks[rank], [](OpKind k) { return k == OpKind::kReduce; }));
  };
  for (unsigned seed = 0; seed < 50; ++seed) {
    const Schedule schedule = CompleteSchedule(built, RandomWork(built, seed), RandomCosts(seed));
    CHECK(reductions(schedule, 0) == "4REDUCE 2REDUCE 0REDUCE");
    CHECK(reductions(schedule, 1) == "5REDUCE 3REDUCE 1REDUCE");
  }
  // The last chunk's gradients are reduced while the first chunk still runs backward.
  const std::string text = ListText(CompleteSchedule(built, {}, {}).ranks[0]);
  CHECK(text.find("4B3 ") < text.find(" 4REDUCE"));
  CHECK(text.find(" 4REDUCE") < text.find(" 2B3"));
  CHECK(text.find(" 0B3 0REDUCE OPT") != std::string::npos);
}

TEST_CASE("orders that cannot run are refused", "[passes]") {
  Schedule schedule = BuildSchedule("gpipe", Chain(2), 1);
  std::swap(schedule.ranks[0][0], schedule.ranks[0][1]);
  CHECK_THROWS_AS(AddTransfers(schedule, {}), ConfigError);
}

}  // namespace
}  // namespace equipoise
