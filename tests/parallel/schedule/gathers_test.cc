// GATHER and FREE: where they stand, that the validator sees what is wrong with them, and that data
// ranks with different work, which make them together, never wait for each other in a circle.

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "parallel/schedule/builders.h"
#include "parallel/schedule/passes.h"
#include "parallel/schedule/schedule_text.h"
#include "parallel/schedule/simulate.h"
#include "parallel/schedule/validate.h"

namespace equipoise {
namespace {

StageGraph GraphFor(const std::string& schedule, int ranks) {
  const ScheduleKind& kind = *FindSchedule(schedule);
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < ranks * kind.fewest_chunks; ++stage)
    rank_of_stage.push_back(RankOfPlace(kind.placement, stage, ranks));
  return ChainGraph(rank_of_stage);
}

// Some stages have no work for some micro-batches, from the first stage on, as without pictures.
StepWork RandomWork(const StageGraph& graph, int micro_batches, std::mt19937& random) {
  StepWork work;
  work.runs.assign(graph.stages.size(),
                   std::vector<bool>(static_cast<size_t>(micro_batches), true));
  for (int m = 0; m < micro_batches; ++m) {
    const size_t idle = random() % (graph.stages.size() + 1);
    for (size_t s = 0; s < idle; ++s) work.runs[s][static_cast<size_t>(m)] = false;
  }
  work.sends = work.runs;
  return work;
}

// The pipelines of several data ranks, in which transfers block, and GATHER and FREE until all data
// ranks have come to them.
class Together {
 public:
  explicit Together(const std::vector<Schedule>& of_data_rank) : schedules_(of_data_rank) {
    next_.assign(of_data_rank.size(), std::vector<size_t>(of_data_rank[0].ranks.size()));
  }

  bool RunToEnd() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t d = 0; d < schedules_.size(); ++d) {
        for (size_t r = 0; r < next_[d].size(); ++r) moved = Advance(d, r) || moved;
      }
    }
    for (size_t d = 0; d < schedules_.size(); ++d) {
      for (size_t r = 0; r < next_[d].size(); ++r) {
        if (next_[d][r] != schedules_[d].ranks[r].size()) return false;
      }
    }
    return true;
  }

 private:
  // The op that a rank stands at, and those that start with it.
  std::vector<Op> At(size_t d, size_t r) const {
    const std::vector<Op>& list = schedules_[d].ranks[r];
    std::vector<Op> group;
    for (size_t p = next_[d][r]; p < list.size() && (group.empty() || list[p].joined); ++p) {
      group.push_back(list[p]);
      group.back().joined = false;
    }
    return group;
  }

  bool Advance(size_t d, size_t r) {
    const std::vector<Op> group = At(d, r);
    if (group.empty()) return false;
    const Op& op = group[0];
    if (op.kind == OpKind::kGather || op.kind == OpKind::kFree) {
      for (size_t other = 0; other < schedules_.size(); ++other) {
        if (At(other, r) != group) return false;
      }
      for (auto& ranks : next_) ++ranks[r];
      return true;
    }
    if (!IsTransfer(op.kind)) {
      ++next_[d][r];
      return true;
    }
    const auto peer = static_cast<size_t>(schedules_[d].graph.stages[op.peer].rank);
    const std::vector<Op> there = At(d, peer);
    for (const Op& transfer : group) {
      const OpKind end = transfer.kind == OpKind::kSend ? OpKind::kRecv : OpKind::kSend;
      const Op other{end, transfer.peer, transfer.micro_batch, transfer.stage};
      if (std::find(there.begin(), there.end(), other) == there.end()) return false;
    }
    next_[d][r] += group.size();
    next_[d][peer] += there.size();
    return true;
  }

  const std::vector<Schedule>& schedules_;
  std::vector<std::vector<size_t>> next_;  // [data rank][pipeline rank]
};

TEST_CASE("gathers: data ranks with other work never wait in a circle") {
  std::mt19937 random(7);
  const std::string name = GENERATE("naive", "gpipe", "1f1b", "zb_h1", "interleaved", "zb_v");
  const ShardedState sharded = GENERATE(ShardedState::kGradients, ShardedState::kParameters);
  for (int round = 0; round < 60; ++round) {
    const int ranks = 1 + static_cast<int>(random() % 4),
              count = 1 + static_cast<int>(random() % 9);
    const StageGraph graph = GraphFor(name, ranks);
    std::vector<Schedule> schedules;
    for (int d = 0; d < 3; ++d) {
      schedules.push_back(CompleteSharded(BuildSchedule(name, graph, count),
                                          RandomWork(graph, count, random), sharded));
      const auto fault = FindFault(schedules.back());
      INFO((fault ? fault->message : "") << "\n" << ToText(schedules.back()));
      CHECK_FALSE(fault);
      CHECK(ParseSchedule(ToText(schedules.back()), "text").ranks == schedules.back().ranks);
    }
    INFO(ToText(schedules[0]) << ToText(schedules[1]) << ToText(schedules[2]));
    CHECK(Together(schedules).RunToEnd());
  }
}

TEST_CASE("gathers: where they stand") {
  const StageGraph graph = GraphFor("zb_h1", 1);
  const auto text = [&](ShardedState sharded, const StepWork& work) {
    const Schedule schedule = CompleteSharded(BuildSchedule("zb_h1", graph, 1), work, sharded);
    std::string line;
    for (const Op& op : schedule.ranks[0]) line += " " + ToString(op);
    return line;
  };
  CHECK(text(ShardedState::kGradients, {}) == " 0F0 0I0 0W0 0W0FREE 0REDUCE OPT");
  CHECK(text(ShardedState::kParameters, {}) ==
        " 0F0GATHER 0F0 0F0FREE 0I0GATHER 0I0 0I0FREE 0W0 0W0FREE 0REDUCE OPT");
  // Others have work: this rank gathers with them and adds zeros.
  const StepWork nothing{{{false}}, {{false}}};
  CHECK(text(ShardedState::kParameters, nothing) ==
        " 0F0GATHER 0F0FREE 0I0GATHER 0I0FREE 0W0FREE 0REDUCE OPT");
}

TEST_CASE("gathers: faults") {
  const auto fault = [](const std::string& list) {
    const auto found =
        FindFault(ParseSchedule("micro_batches 1\nstage 0 rank 0\nrank 0: " + list, "text"));
    return found ? found->message : "";
  };
  CHECK(fault("0F0GATHER 0F0 0F0FREE 0B0GATHER 0B0 0B0FREE 0REDUCE OPT").empty());
  CHECK(fault("0F0 0B0 0B0FREE 0REDUCE OPT").empty());
  CHECK(fault("0F0 0F0FREE 0B0GATHER 0B0 0B0FREE 0REDUCE OPT") ==
        "rank 0, op 0 (0F0): 0F0GATHER is missing before this");
  CHECK(fault("0F0GATHER 0F0 0B0GATHER 0B0 0B0FREE 0REDUCE OPT") ==
        "rank 0, op 2 (0B0GATHER): 0F0FREE is missing before this");
  CHECK(fault("0F0GATHER 0F0 0F0FREE 0B0GATHER 0B0 0REDUCE 0B0FREE OPT") ==
        "rank 0, op 5 (0REDUCE): 0B0FREE is missing before this");
  CHECK(fault("0F0GATHER 0F0 0F0FREE 0B0GATHER 0B0 0B0FREE 0B0FREE 0REDUCE OPT") ==
        "rank 0, op 6 (0B0FREE): listed twice, at op 5 already");
}

TEST_CASE("gathers: simulated, and waited for") {
  const Schedule schedule = ParseSchedule(
      "micro_batches 1\nstage 0 rank 0\n"
      "rank 0: 0F0GATHER 0F0 0F0FREE 0B0GATHER 0B0 0B0FREE 0REDUCE OPT",
      "text");
  SimulationCosts costs;
  costs.seconds = [](const Op& op) {
    if (op.kind == OpKind::kGather) return op.pass == OpKind::kForward ? 3.0 : 5.0;
    return IsCompute(op.kind) ? 4.0 : 0.0;
  };
  const Simulation simulation = Simulate(schedule, costs);
  CHECK(simulation.start_s[0][1] == 3);   // the forward, behind its gather
  CHECK(simulation.start_s[0][4] == 12);  // the backward: 3 + 4, and its gather
  CHECK(simulation.busy_s[0] == 8);
}

}  // namespace
}  // namespace equipoise
