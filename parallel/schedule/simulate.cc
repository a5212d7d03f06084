#include "parallel/schedule/simulate.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "configs/error.h"

namespace equipoise {
namespace {

double DefaultSeconds(const Op& op) {
  if (!IsCompute(op.kind)) return 0;
  return op.kind == OpKind::kBackward || op.kind == OpKind::kEncoderBackward ? 2 : 1;
}

// A schedule that is being run. Ops are numbered through, rank by rank.
class Simulator {
 public:
  Simulator(const Schedule& schedule, const SimulationCosts& costs)
      : schedule_(schedule), costs_(costs), dependencies_(Dependencies(schedule)) {
    const size_t ranks = schedule.ranks.size();
    first_.assign(ranks + 1, 0);
    for (size_t r = 0; r < ranks; ++r) {
      first_[r + 1] = first_[r] + static_cast<int>(schedule.ranks[r].size());
    }
    const int ops = first_.back();
    missing_.assign(ops, 0);
    ready_s_.assign(ops, 0);
    start_s_.assign(ops, 0);
    end_s_.assign(ops, 0);
    done_.assign(ops, false);
    next_.assign(first_.begin(), first_.end() - 1);
    free_s_.assign(ranks, 0);
    reduced_s_.assign(ranks, 0);
    link_free_s_.assign(ranks * ranks, 0);
    LinkTakers();
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
  const Op& OpAt(int rank, int op) const { return schedule_.ranks[rank][op - first_[rank]]; }

  int Number(const OpPlace& place) const { return first_[place.rank] + place.position; }

  // Turns "what an op takes" into "who takes an op's result".
  void LinkTakers() {
    taker_first_.assign(first_.back() + 1, 0);
    for (const auto& rank : dependencies_) {
      for (const auto& op : rank) {
        for (const OpPlace& made : op) ++taker_first_[Number(made) + 1];
      }
    }
    for (size_t i = 1; i < taker_first_.size(); ++i) taker_first_[i] += taker_first_[i - 1];
    takers_.resize(taker_first_.back());
    std::vector<int> fill(taker_first_.begin(), taker_first_.end() - 1);
    for (size_t r = 0; r < dependencies_.size(); ++r) {
      for (size_t p = 0; p < dependencies_[r].size(); ++p) {
        const OpPlace taker{static_cast<int>(r), static_cast<int>(p)};
        missing_[Number(taker)] = static_cast<int>(dependencies_[r][p].size());
        for (const OpPlace& made : dependencies_[r][p]) takers_[fill[Number(made)]++] = taker;
      }
    }
  }

  // Runs the rank's ops up to the first that has to wait.
  void Advance(int rank) {
    running_ = rank;
    for (int& op = next_[rank]; op < first_[rank + 1];) {
      if (OpAt(rank, op).kind != OpKind::kRecv) {
        if (missing_[op] > 0) return;
        Start(rank, op);
        Finish(rank, op++);
      } else if (missing_[op++] == 0) {
        Arrive(rank, op - 1);
      }
    }
  }

  void Start(int rank, int number) {
    const Op& op = OpAt(rank, number);
    const double ready = std::max(free_s_[rank], ready_s_[number]);
    if (op.kind == OpKind::kSend) {
      const auto [start, end] = Transfer(op, rank, ready);
      start_s_[number] = start;
      end_s_[number] = end;
      return;
    }
    const bool reduces = op.kind == OpKind::kReduce;
    double& lane_free = reduces ? reduced_s_[rank] : free_s_[rank];
    start_s_[number] = std::max(ready, lane_free);
    end_s_[number] = lane_free =
        start_s_[number] + (costs_.seconds ? costs_.seconds(op) : DefaultSeconds(op));
  }

  void Arrive(int rank, int number) {
    end_s_[number] = ready_s_[number];
    Finish(rank, number);
  }

  // Hands an op's result to the ops that take it.
  void Finish(int rank, int number) {
    done_[number] = true;
    const Op& op = OpAt(rank, number);
    for (int t = taker_first_[number]; t < taker_first_[number + 1]; ++t) {
      const OpPlace& place = takers_[t];
      const int taker = Number(place);
      double arrival = end_s_[number];
      if (op.kind == OpKind::kSend) {
        start_s_[taker] = start_s_[number];
      } else if (place.rank != rank) {
        arrival = SendUnlisted(op, rank, OpAt(place.rank, taker), arrival);
      }
      ready_s_[taker] = std::max(ready_s_[taker], arrival);
      if (--missing_[taker] > 0) continue;
      if (taker < next_[place.rank]) {
        Arrive(place.rank, taker);  // a receive that was posted before
      } else if (taker == next_[place.rank] && place.rank != running_) {
        ready_.push_back(place.rank);
      }
    }
  }

  // Start and end of a transfer on its link.
  std::pair<double, double> Transfer(const Op& send, int from, double ready) {
    const int to = schedule_.graph.stages[send.peer].rank;
    double& link_free = link_free_s_[from * schedule_.ranks.size() + to];
    const double start = std::max(ready, link_free);
    const LinkModel link = costs_.link ? costs_.link(from, to) : LinkModel();
    double seconds = link.latency_s;
    if (link.bytes_per_s > 0 && costs_.bytes) seconds += costs_.bytes(send) / link.bytes_per_s;
    link_free = start + seconds;
    return {start, link_free};
  }

  double SendUnlisted(const Op& made, int rank, const Op& taker, double ready) {
    const Op send{OpKind::kSend, made.stage, made.micro_batch, taker.stage};
    const Op receive{OpKind::kRecv, taker.stage, made.micro_batch, made.stage};
    const auto [start, end] = Transfer(send, rank, ready);
    unlisted_.push_back({rank, "communication", ToString(send), start, end});
    const int to = schedule_.graph.stages[taker.stage].rank;
    unlisted_.push_back({to, "communication", ToString(receive), start, end});
    return end;
  }

  void RefuseDeadlock() const {
    for (size_t r = 0; r < schedule_.ranks.size(); ++r) {
      const int rank = static_cast<int>(r);
      if (next_[r] == first_[r + 1]) continue;
      const int position = next_[r] - first_[r];
      std::string waits;
      for (const OpPlace& made : dependencies_[r][position]) {
        if (done_[Number(made)]) continue;
        waits = internal::Join(" waits for ", ToString(OpAt(made.rank, Number(made))), " (rank ",
                               made.rank, ", op ", made.position, ")");
        break;
      }
      throw ConfigError(internal::Join("schedule deadlocks: rank ", rank, ", op ", position, " (",
                                       ToString(OpAt(rank, next_[r])), ")", waits,
                                       "; give each rank an order in which results come first"));
    }
  }

  Simulation Result() {
    Simulation result;
    const size_t ranks = schedule_.ranks.size();
    result.timeline.reserve(first_.back() + unlisted_.size());
    result.busy_s.assign(ranks, 0);
    for (size_t r = 0; r < ranks; ++r) {
      for (int op = first_[r]; op < first_[r + 1]; ++op) {
        const Op& what = schedule_.ranks[r][op - first_[r]];
        const bool computes = IsCompute(what.kind) || what.kind == OpKind::kOptimizer;
        if (computes) result.busy_s[r] += end_s_[op] - start_s_[op];
        result.timeline.push_back({static_cast<int>(r), computes ? "compute" : "communication",
                                   ToString(what), start_s_[op], end_s_[op]});
        result.step_s = std::max(result.step_s, end_s_[op]);
      }
      const auto begin = first_[r], end = first_[r + 1];
      result.start_s.emplace_back(start_s_.begin() + begin, start_s_.begin() + end);
      result.end_s.emplace_back(end_s_.begin() + begin, end_s_.begin() + end);
    }
    std::move(unlisted_.begin(), unlisted_.end(), std::back_inserter(result.timeline));
    for (double busy : result.busy_s) {
      result.bubble_share.push_back(result.step_s > 0 ? 1 - busy / result.step_s : 0);
    }
    result.peak_kept_bytes = PeakKeptBytes();
    return result;
  }

  // A rank's ops run in order, so its peak does not depend on time. What no backward takes is never
  // kept.
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
      double kept = 0, peak = 0;
      for (size_t p = 0; p < list.size(); ++p) {
        const Op& op = list[p];
        if (!IsCompute(op.kind)) continue;
        const int freed = freed_at[slot(op)];
        const bool takes = IsForward(op.kind) && freed >= 0;
        if (!takes && freed != static_cast<int>(p)) continue;
        const double bytes = costs_.kept_bytes ? costs_.kept_bytes(op.stage, op.micro_batch) : 1;
        kept += takes ? bytes : -bytes;
        peak = std::max(peak, kept);
      }
      peaks.push_back(peak);
    }
    return peaks;
  }

  const Schedule& schedule_;
  const SimulationCosts& costs_;
  const std::vector<std::vector<std::vector<OpPlace>>> dependencies_;
  std::vector<int> first_;        // [rank] number of its first op
  std::vector<int> taker_first_;  // [op] its first entry in takers_
  std::vector<OpPlace> takers_;
  std::vector<int> missing_;     // [op] results that it still waits for
  std::vector<double> ready_s_;  // [op] when the last of those that came was there
  std::vector<double> start_s_, end_s_;
  std::vector<bool> done_;
  std::vector<int> next_;          // [rank] op that it has come to
  std::vector<double> free_s_;     // [rank] when its compute is free
  std::vector<double> reduced_s_;  // [rank] when its reductions so far are over
  std::vector<double> link_free_s_;
  std::vector<int> ready_;  // ranks that may go on
  int running_ = -1;        // the one that does
  Timeline unlisted_;
};

}  // namespace

Simulation Simulate(const Schedule& schedule, const SimulationCosts& costs) {
  return Simulator(schedule, costs).Run();
}

}  // namespace equipoise
