// The simulator against a small one that knows nothing of it: the rules as equations, solved by
// going through all lists until no time changes any more.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "parallel/schedule/builders.h"
#include "parallel/schedule/passes.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {
namespace {

class Oracle {
 public:
  Oracle(const Schedule& schedule, const SimulationCosts& costs)
      : schedule_(schedule), costs_(costs) {
    for (const std::vector<Op>& list : schedule.ranks) {
      for (const Op& op : list) listed_ = listed_ || IsTransfer(op.kind);
    }
    do {
      changed_ = false;
      link_free_.clear();
      for (size_t r = 0; r < schedule.ranks.size(); ++r) Sweep(static_cast<int>(r));
    } while (changed_);
  }

  double End(const Op& op) const { return end_.at(ToString(op)); }
  double StepEnd() const {
    double last = 0;
    for (const auto& [name, end] : end_) last = std::max(last, end);
    return last;
  }

 private:
  using Value = std::tuple<int, int, int>;  // from stage, to stage, micro-batch

  int RankOf(int stage) const { return schedule_.graph.stages[stage].rank; }
  const std::vector<int>& NextOf(int stage) const { return schedule_.graph.stages[stage].next; }

  template <class Map, class Key>
  static double Get(const Map& map, const Key& key) {
    const auto at = map.find(key);
    return at == map.end() ? 0 : at->second;
  }
  template <class Map, class Key>
  void Set(Map& map, const Key& key, double value) {
    const auto [at, added] = map.emplace(key, value);
    changed_ = changed_ || added || at->second != value;
    at->second = value;
  }

  bool GivesGradient(int from, int to, int m) const {  // from comes after to
    return schedule_.work.Sends(to, m) && schedule_.work.Runs(from, m) &&
           schedule_.graph.stages[from].needs_input_gradient && schedule_.graph.HasBackward(to);
  }

  // When everything that a compute op takes is there.
  double Ready(const Op& op) const {
    const int s = op.stage, m = op.micro_batch;
    double ready = 0;
    for (int other = 0; other < schedule_.graph.num_stages(); ++other) {
      const auto feeds = [&](int a, int b) {
        return std::count(NextOf(a).begin(), NextOf(a).end(), b) > 0;
      };
      const bool forward = IsForward(op.kind) && feeds(other, s) && schedule_.work.Sends(other, m);
      const bool backward =
          MakesInputGradient(op.kind) && feeds(s, other) && GivesGradient(other, s, m);
      if (forward || backward) ready = std::max(ready, Get(arrival_, Value{other, s, m}));
    }
    const std::string name = std::to_string(s) + "F" + std::to_string(m);
    if (op.kind == OpKind::kWeightGradient) {
      ready = Get(end_, std::to_string(s) + "I" + std::to_string(m));
    } else if (!IsForward(op.kind)) {
      ready = std::max(
          {ready, Get(end_, name), Get(end_, std::to_string(s) + "V" + std::to_string(m))});
    }
    return ready;
  }

  void Send(const Op& send, int from, double ready) {
    const int to = RankOf(send.peer);
    double& free = link_free_[{from, to}];
    const LinkModel link = costs_.link(from, to);
    free = std::max(free, ready) + link.latency_s + costs_.bytes(send) / link.bytes_per_s;
    Set(arrival_, Value{send.stage, send.peer, send.micro_batch}, free);
    Set(end_, ToString(send), free);
    Set(end_, ToString({OpKind::kRecv, send.peer, send.micro_batch, send.stage}), free);
  }

  // A value on its own rank is there at once; without listed transfers all others leave at once.
  void HandOn(const Op& op, int rank, double end) {
    for (int other = 0; other < schedule_.graph.num_stages(); ++other) {
      const std::vector<int>&after = NextOf(op.stage), &before = NextOf(other);
      const bool forward = IsForward(op.kind) && std::count(after.begin(), after.end(), other) > 0;
      const bool backward =
          MakesInputGradient(op.kind) && std::count(before.begin(), before.end(), op.stage) > 0;
      if (forward && !(schedule_.work.Sends(op.stage, op.micro_batch) &&
                       schedule_.work.Runs(other, op.micro_batch))) {
        continue;
      }
      if (backward && !GivesGradient(op.stage, other, op.micro_batch)) continue;
      if (!forward && !backward) continue;
      if (RankOf(other) == rank) {
        Set(arrival_, Value{op.stage, other, op.micro_batch}, end);
      } else if (!listed_) {
        Send({OpKind::kSend, op.stage, op.micro_batch, other}, rank, end);
      }
    }
  }

  void Sweep(int rank) {
    double now = 0, reduced = 0;
    for (const Op& op : schedule_.ranks[rank]) {
      if (op.kind == OpKind::kRecv) continue;
      if (op.kind == OpKind::kSend) {
        Send(op, rank, now);
      } else if (op.kind == OpKind::kReduce) {
        reduced = std::max(reduced, now) + costs_.seconds(op);
        Set(end_, ToString(op), reduced);
      } else {
        now = std::max(now, op.kind == OpKind::kOptimizer ? reduced : Ready(op));
        now += costs_.seconds(op);
        Set(end_, op.kind == OpKind::kOptimizer ? std::to_string(rank) : ToString(op), now);
        if (IsCompute(op.kind)) HandOn(op, rank, now);
      }
    }
  }

  const Schedule& schedule_;
  const SimulationCosts& costs_;
  bool listed_ = false, changed_ = false;
  std::map<std::string, double> end_;
  std::map<Value, double> arrival_;
  std::map<std::pair<int, int>, double> link_free_;
};

// Seconds by kind, stage and micro-batch, the same whenever they are asked for.
double Drawn(uint32_t seed, int a, int b, int c) {
  std::seed_seq sequence{seed, static_cast<uint32_t>(a), static_cast<uint32_t>(b),
                         static_cast<uint32_t>(c)};
  std::minstd_rand random(sequence);
  return std::uniform_real_distribution<double>(0.1, 2)(random);
}

SimulationCosts RandomCosts(uint32_t seed) {
  SimulationCosts costs;
  costs.seconds = [seed](const Op& op) {
    return Drawn(seed, static_cast<int>(op.kind), op.stage, op.micro_batch);
  };
  costs.bytes = [seed](const Op& op) { return 10 * Drawn(seed + 1, op.peer, op.stage, 0); };
  costs.link = [seed](int from, int to) {
    return LinkModel{Drawn(seed + 2, from, to, 0), 10 * Drawn(seed + 3, from, to, 0)};
  };
  return costs;
}

struct Case {
  std::string name;
  StageGraph graph;
};

std::vector<Case> Cases() {
  StageGraph
      encoders;  // two encoders, one of two stages, and a text stage feed the stage of the loss
  encoders.stages = {{0, {1}, true}, {1, {4}, true}, {2, {4}, true}, {3, {4}}, {4, {5}}, {5, {}}};
  StageGraph frozen = ChainGraph({0, 1, 2});
  frozen.stages[0].needs_weight_gradient = false;
  frozen.stages[1].needs_input_gradient = false;
  std::vector<Case> cases;
  for (const char* name : {"naive", "gpipe", "1f1b"}) {
    cases.push_back({name, ChainGraph({0})});
    cases.push_back({name, ChainGraph({0, 1})});
    cases.push_back({name, ChainGraph({0, 0, 1, 2, 2})});
    cases.push_back({name, encoders});
    cases.push_back({name, frozen});
  }
  cases.push_back({"interleaved", ChainGraph({0, 1, 0, 1})});
  cases.push_back({"zb_h1", ChainGraph({0, 1, 2, 3})});
  cases.push_back({"zb_v", ChainGraph({0, 1, 2, 2, 1, 0})});
  cases.push_back({"interleaved", ChainGraph({0, 1, 2, 0, 1, 2, 0, 1, 2})});
  return cases;
}

StepWork RandomWork(const StageGraph& graph, int micro_batches, std::mt19937& random) {
  StepWork work;
  std::bernoulli_distribution idle(0.3);
  for (const StageNode& stage : graph.stages) {
    std::vector<bool>& runs = work.runs.emplace_back(micro_batches, true);
    for (int m = 0; m < micro_batches; ++m) runs[m] = !stage.encoder || !idle(random);
  }
  return work;
}

TEST_CASE("the simulator agrees with the equations", "[simulate][cpu]") {
  uint32_t seed = 0;
  std::mt19937 random(7);
  for (const Case& c : Cases()) {
    for (int micro_batches : {1, 2, 5, 6}) {
      INFO(c.name << " of " << c.graph.num_stages() << " stages, M=" << micro_batches);
      const SimulationCosts costs = RandomCosts(++seed);
      const Schedule built = BuildSchedule(c.name, c.graph, micro_batches);
      const StepWork work = RandomWork(c.graph, micro_batches, random);
      const Schedule idle_dropped = DropIdleOps(built, work);
      for (const Schedule& schedule : {built, idle_dropped, AddReductions(idle_dropped),
                                       CompleteSchedule(built, work, costs)}) {
        const Simulation result = Simulate(schedule, costs);
        const Oracle oracle(schedule, costs);
        CHECK(result.step_s == Approx(oracle.StepEnd()));
        for (size_t r = 0; r < schedule.ranks.size(); ++r) {
          for (size_t p = 0; p < schedule.ranks[r].size(); ++p) {
            const Op& op = schedule.ranks[r][p];
            if (op.kind == OpKind::kOptimizer) continue;
            INFO(ToString(op));
            CHECK(result.end_s[r][p] == Approx(oracle.End(op)));
          }
        }
      }
    }
  }
}

TEST_CASE("spans say what the times say", "[simulate][cpu]") {
  const SimulationCosts costs = RandomCosts(99);
  const Schedule schedule =
      CompleteSchedule(BuildSchedule("1f1b", ChainGraph({0, 1, 2}), 4), StepWork(), costs);
  const Simulation result = Simulate(schedule, costs);
  size_t i = 0;
  for (size_t r = 0; r < schedule.ranks.size(); ++r) {
    double busy_s = 0;
    for (size_t p = 0; p < schedule.ranks[r].size(); ++p, ++i) {
      const Span& span = result.timeline.at(i);
      const Op& op = schedule.ranks[r][p];
      const bool computes = IsCompute(op.kind) || op.kind == OpKind::kOptimizer;
      CHECK(span.rank == static_cast<int>(r));
      CHECK(span.name == ToString(op));
      CHECK(span.lane == (computes ? "compute" : "communication"));
      CHECK(span.start_s == result.start_s[r][p]);
      CHECK(span.end_s == result.end_s[r][p]);
      if (computes) busy_s += span.end_s - span.start_s;
    }
    CHECK(result.busy_s[r] == Approx(busy_s));
    CHECK(result.bubble_share[r] == Approx(1 - busy_s / result.step_s));
  }
  CHECK(i == result.timeline.size());
}

}  // namespace
}  // namespace equipoise
