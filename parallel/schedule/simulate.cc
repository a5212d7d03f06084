// A discrete simulation without an event queue. Every op's start depends only on its producers, on
// the op before it on its rank and on the transfer before it on its link, and S are issued in the
// order of a rank's list; so the times do not depend on the order in which ranks are advanced, and
// each rank simply runs as far as its inputs allow. An op that ends decrements the count of missing
// inputs of its consumers and wakes the ranks that wait for it. O(ops + edges).
//
// If a rank cannot reach the end of its list, the schedule deadlocks: no order of events could
// help.

#include "parallel/schedule/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>

#include "configs/base/error.h"
#include "parallel/schedule/dependencies.h"

namespace equipoise {
namespace {

// A schedule being run. Ops are numbered as in Dependencies.
class Simulator {
 public:
  // `wants_timeline`: and peaks, which a search has no use for.
  Simulator(const Schedule& schedule, const SimulationCosts& costs, bool wants_timeline)
      : schedule_(schedule),
        costs_(costs),
        dependencies_(schedule),
        wants_timeline_(wants_timeline),
        lanes_(static_cast<size_t>(schedule.graph.num_lanes())) {
    runs_.reserve(static_cast<size_t>(dependencies_.num_ops()));
    const size_t ranks = schedule.ranks.size();
    for (int op = 0; op < dependencies_.num_ops(); ++op) {
      runs_.push_back({.missing = static_cast<int>(dependencies_.ProducersOf(op).size()),
                       .rank = dependencies_.PlaceOf(op).rank});
    }
    for (size_t r = 0; r < ranks; ++r) next_.push_back(First(static_cast<int>(r)));
    free_s_.assign(ranks * lanes_, 0);
    reduced_s_.assign(ranks * lanes_, 0);
    link_free_s_.assign(ranks * ranks * lanes_, 0);
    links_.resize(ranks * ranks);
    if (!costs.link) return;
    for (size_t at = 0; at < links_.size(); ++at) {
      links_[at] = costs.link(static_cast<int>(at / ranks), static_cast<int>(at % ranks));
    }
  }

  Simulation Run() {
    for (int r = static_cast<int>(schedule_.ranks.size()) - 1; r >= 0; --r) ready_.push_back(r);
    while (!ready_.empty()) {
      const int rank = ready_.back();
      ready_.pop_back();
      Advance(rank);
    }
    RefuseDeadlock();
    return Result();
  }

 private:
  int First(int rank) const { return dependencies_.First(rank); }
  const Op& OpAt(int rank, int op) const { return schedule_.ranks[rank][op - First(rank)]; }
  const Op& OpAt(int op) const {
    const OpPlace place = dependencies_.PlaceOf(op);
    return schedule_.ranks[place.rank][place.position];
  }

  // -1, of all lanes, where there is one.
  int Lane(const Op& op) const { return lanes_ == 1 ? -1 : LaneOf(schedule_.graph, op); }

  // The clocks of one rank or link, by lane: an op of no lane starts when all are free, and keeps
  // all of them.
  double FreeAt(const std::vector<double>& clocks, size_t at, int lane) const {
    if (lanes_ == 1) return clocks[at];
    if (lane >= 0) return clocks[at * lanes_ + static_cast<size_t>(lane)];
    const auto first = clocks.begin() + static_cast<std::ptrdiff_t>(at * lanes_);
    return *std::max_element(first, first + static_cast<std::ptrdiff_t>(lanes_));
  }
  void KeepUntil(std::vector<double>& clocks, size_t at, int lane, double end_s) const {
    for (size_t each = 0; each < lanes_; ++each) {
      if (lane < 0 || static_cast<size_t>(lane) == each) clocks[at * lanes_ + each] = end_s;
    }
  }
  // The rank goes on when what it sends has arrived.
  void BlockUntil(int rank, int lane, double end_s) {
    KeepUntil(free_s_, rank, lane, std::max(FreeAt(free_s_, rank, lane), end_s));
  }

  // Runs the rank's ops up to the first whose inputs are missing; receives are posted and passed.
  void Advance(int rank) {
    running_ = rank;
    for (int& op = next_[rank]; op < First(rank + 1);) {
      if (OpAt(rank, op).kind != OpKind::kRecv) {
        if (runs_[op].missing > 0) return;
        Start(rank, op);
        Finish(rank, op++);
      } else if (runs_[op++].missing == 0) {
        Arrive(rank, op - 1);
      }
    }
  }

  void Start(int rank, int number) {
    const Op& op = OpAt(rank, number);
    OpRun& run = runs_[number];
    const int lane = Lane(op);
    const double ready = std::max(FreeAt(free_s_, rank, lane), run.ready_s);
    if (op.kind == OpKind::kSend) {
      std::tie(run.start_s, run.end_s) = Transfer(op, rank, ready);
      if (costs_.blocking_sends) BlockUntil(rank, lane, run.end_s);
      return;
    }
    const bool collective = op.kind == OpKind::kReduce || op.kind == OpKind::kGather;
    std::vector<double>& clocks = collective ? reduced_s_ : free_s_;
    run.start_s = std::max(ready, FreeAt(clocks, rank, lane));
    run.end_s = run.start_s + SecondsOfOp(costs_, op);
    KeepUntil(clocks, rank, lane, run.end_s);
  }

  void Arrive(int rank, int number) {
    runs_[number].end_s = runs_[number].ready_s;
    Finish(rank, number);
  }

  // Delivers an op's result to its consumers.
  void Finish(int rank, int number) {
    const Op& op = OpAt(rank, number);
    const OpRun& run = runs_[number];
    for (const int consumer : dependencies_.ConsumersOf(number)) {
      OpRun& waiting = runs_[consumer];
      double arrival = run.end_s;
      if (op.kind == OpKind::kSend) {
        waiting.start_s = run.start_s;
      } else if (waiting.rank != rank) {
        arrival = SendUnlisted(op, rank, OpAt(consumer), arrival);
        const Op send{OpKind::kSend, op.stage, op.micro_batch, OpAt(consumer).stage};
        if (costs_.blocking_sends) BlockUntil(rank, Lane(send), arrival);
      }
      waiting.ready_s = std::max(waiting.ready_s, arrival);
      if (--waiting.missing > 0) continue;
      if (consumer < next_[waiting.rank]) {
        Arrive(waiting.rank, consumer);  // a receive that was posted before
      } else if (consumer == next_[waiting.rank] && waiting.rank != running_) {
        ready_.push_back(waiting.rank);
      }
    }
  }

  // Start and end of a transfer on its link.
  std::pair<double, double> Transfer(const Op& send, int from, double ready) {
    const int to = schedule_.graph.stages[send.peer].rank;
    const size_t at = from * schedule_.ranks.size() + to;
    const int lane = Lane(send);
    const double start = std::max(ready, FreeAt(link_free_s_, at, lane));
    const LinkModel& link = links_[at];
    double seconds = link.latency_s;
    if (link.bytes_per_s > 0 && costs_.bytes) seconds += costs_.bytes(send) / link.bytes_per_s;
    KeepUntil(link_free_s_, at, lane, start + seconds);
    return {start, start + seconds};
  }

  std::string TimelineLane(const Op& op) const {
    const bool computes = IsCompute(op.kind) || op.kind == OpKind::kOptimizer;
    const int lane = LaneOf(schedule_.graph, op);
    return std::string(computes ? kComputeLane : kCommunicationLane) +
           (lane > 0 ? fmt::format(", lane {}", lane) : "");
  }

  double SendUnlisted(const Op& made, int rank, const Op& consumer, double ready) {
    const Op send{OpKind::kSend, made.stage, made.micro_batch, consumer.stage};
    const Op receive{OpKind::kRecv, consumer.stage, made.micro_batch, made.stage};
    const auto [start, end] = Transfer(send, rank, ready);
    if (!wants_timeline_) return end;
    unlisted_.push_back({rank, TimelineLane(send), ToString(send), start, end});
    const int to = schedule_.graph.stages[consumer.stage].rank;
    unlisted_.push_back({to, TimelineLane(receive), ToString(receive), start, end});
    return end;
  }

  bool IsDone(int op) const { return op < next_[runs_[op].rank] && runs_[op].missing == 0; }

  void RefuseDeadlock() const {
    for (int rank = 0; rank < static_cast<int>(next_.size()); ++rank) {
      const int op = next_[rank];
      if (op == First(rank + 1)) continue;
      std::string waits;
      for (const int made : dependencies_.ProducersOf(op)) {
        if (IsDone(made)) continue;
        const OpPlace place = dependencies_.PlaceOf(made);
        waits = fmt::format(" waits for {} (rank {}, op {})", ToString(OpAt(made)), place.rank,
                            place.position);
        break;
      }
      throw ConfigError(
          fmt::format("schedule deadlocks: rank {}, op {} ({}){}; give each rank an order in which "
                      "results come first",
                      rank, op - First(rank), ToString(OpAt(op)), waits));
    }
  }

  Simulation Result() {
    Simulation result;
    const int ranks = static_cast<int>(schedule_.ranks.size());
    result.busy_s.assign(ranks, 0);
    result.start_s.resize(ranks);
    result.end_s.resize(ranks);
    if (wants_timeline_) result.timeline.reserve(runs_.size() + unlisted_.size());
    for (int rank = 0; rank < ranks; ++rank) {
      result.start_s[rank].reserve(schedule_.ranks[rank].size());
      result.end_s[rank].reserve(schedule_.ranks[rank].size());
      for (int op = First(rank); op < First(rank + 1); ++op) {
        const Op& what = OpAt(rank, op);
        const bool computes = IsCompute(what.kind) || what.kind == OpKind::kOptimizer;
        const double lanes = Lane(what) < 0 ? 1 : static_cast<double>(lanes_);
        const OpRun& run = runs_[op];
        if (computes) result.busy_s[rank] += (run.end_s - run.start_s) / lanes;
        result.step_s = std::max(result.step_s, run.end_s);
        result.start_s[rank].push_back(run.start_s);
        result.end_s[rank].push_back(run.end_s);
        if (!wants_timeline_) continue;
        result.timeline.push_back(
            {rank, TimelineLane(what), ToString(what), run.start_s, run.end_s});
      }
    }
    std::move(unlisted_.begin(), unlisted_.end(), std::back_inserter(result.timeline));
    for (double busy : result.busy_s) {
      result.bubble_share.push_back(result.step_s > 0 ? 1 - busy / result.step_s : 0);
    }
    if (wants_timeline_) result.peak_kept_bytes = PeakKeptBytes();
    return result;
  }

  // Peak by rank. A rank's ops run in order, so its peak does not depend on time. Nothing is kept
  // of a forward that no backward follows, here or in the next step.
  std::vector<double> PeakKeptBytes() const {
    const int micro_batches = schedule_.micro_batches;
    std::vector<double> peaks;
    std::vector<int> freed_at(schedule_.graph.num_stages() * micro_batches, -1);
    for (const std::vector<Op>& list : schedule_.ranks) {
      const auto slot = [&](const Op& op) { return op.stage * micro_batches + op.micro_batch; };
      for (size_t p = 0; p < list.size(); ++p) {
        if (IsCompute(list[p].kind) && !IsForward(list[p].kind)) {
          freed_at[slot(list[p])] = static_cast<int>(p);
        }
      }
      const auto bytes_of = [&](int stage, int m) {
        return costs_.kept_bytes ? costs_.kept_bytes(stage, m) : 1;
      };
      std::vector<double> kept(lanes_, 0);
      for (const int stage : schedule_.graph.StagesOf(static_cast<int>(peaks.size()))) {
        for (int m = 0; m < schedule_.own(); ++m) {  // those in flight from the step before
          if (IsInFlight(stage, m)) kept.front() += bytes_of(stage, m);
        }
      }
      double peak = kept.front();
      for (size_t p = 0; p < list.size(); ++p) {
        const Op& op = list[p];
        if (!IsCompute(op.kind)) continue;
        const int freed = freed_at[slot(op)];
        const bool stays = op.micro_batch >= schedule_.own();  // for the next step
        if (freed < 0 && !(stays && schedule_.graph.HasBackward(op.stage))) continue;
        const double bytes = bytes_of(op.stage, op.micro_batch);
        const double deferred =
            costs_.deferred_bytes ? costs_.deferred_bytes(op.stage, op.micro_batch) : bytes;
        double more = deferred - bytes;  // I
        if (IsForward(op.kind)) {
          more = bytes;
        } else if (freed == static_cast<int>(p)) {
          more = op.kind == OpKind::kWeightGradient ? -deferred : -bytes;
        }
        for (size_t lane = 0; lane < lanes_; ++lane) {
          if (RunsInLane(schedule_.graph, op, static_cast<int>(lane))) kept[lane] += more;
          peak = std::max(peak, kept[lane]);
        }
      }
      peaks.push_back(peak);
    }
    return peaks;
  }

  // Whether the step before has run its forward, and this one runs its backward.
  bool IsInFlight(int stage, int m) const {
    return RunsBackward(schedule_, stage, m) && !RunsForward(schedule_, stage, m);
  }

  const Schedule& schedule_;
  const SimulationCosts& costs_;
  const Dependencies dependencies_;
  const bool wants_timeline_;
  const size_t lanes_;
  // An op's state, all of it beside each other: ops wait for ops that lie far away.
  struct OpRun {
    double ready_s = 0;  // when the last of its inputs so far arrived
    double start_s = 0, end_s = 0;
    int missing = 0;  // inputs that have not arrived
    int rank = 0;
  };
  std::vector<OpRun> runs_;          // [op]
  std::vector<int> next_;            // [rank] op that it has reached
  std::vector<double> free_s_;       // [rank][lane] when its compute is free
  std::vector<double> reduced_s_;    // [rank][lane] when its reductions so far have ended
  std::vector<double> link_free_s_;  // [from][to][lane]
  std::vector<LinkModel> links_;     // [from][to]
  std::vector<int> ready_;           // ranks that may go on
  int running_ = -1;                 // the rank in Advance()
  Timeline unlisted_;
};

}  // namespace

double SecondsOfOp(const SimulationCosts& costs, const Op& op) {
  if (costs.seconds) return costs.seconds(op);
  if (!IsCompute(op.kind)) return 0;
  return op.kind == OpKind::kBackward || op.kind == OpKind::kEncoderBackward ? 2 : 1;
}

Simulation Simulate(const Schedule& schedule, const SimulationCosts& costs) {
  return Simulator(schedule, costs, /*wants_timeline=*/true).Run();
}

Simulation SimulateTimes(const Schedule& schedule, const SimulationCosts& costs) {
  return Simulator(schedule, costs, /*wants_timeline=*/false).Run();
}

}  // namespace equipoise
