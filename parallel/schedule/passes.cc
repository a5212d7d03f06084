// AddTransfers() is where deadlock is excluded. It runs the compute ops in simulated time and
// rewrites the lists in one global order in which no op comes before what it waits for; S and R
// of a value are listed at the same point of that order, right after its producer. Invariant: of
// all entries that are not done, the first in the global order can always run, since everything
// before it, on every rank, is done. So the lists end even if each transfer blocks until its other
// end arrives, whatever the real times are; the proof does not use them. O((ops + transfers) log
// ranks), with a heap of the ranks whose next op is ready.

#include "parallel/schedule/passes.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "configs/base/error.h"
#include "parallel/schedule/dependencies.h"

namespace equipoise {
namespace {

bool IsIdle(const Schedule& schedule, const Op& op) {
  if (IsTransfer(op.kind)) {
    const bool sends = op.kind == OpKind::kSend;
    const int from = sends ? op.stage : op.peer, to = sends ? op.peer : op.stage;
    return from < to ? !SendsRows(schedule, from, to, op.micro_batch)
                     : !SendsGradient(schedule, from, to, op.micro_batch);
  }
  if (!IsCompute(op.kind)) return false;
  if (!schedule.work.Runs(op.stage, op.micro_batch)) return true;
  if (IsForward(op.kind)) return false;
  return op.kind == OpKind::kWeightGradient ? !schedule.graph.stages[op.stage].needs_weight_gradient
                                            : !schedule.graph.HasBackward(op.stage);
}

// Writes the lists of a schedule with its transfers, in the global order described above.
class TransferLister {
 public:
  TransferLister(const Schedule& schedule, const SimulationCosts& costs)
      : schedule_(schedule),
        previous_(schedule.graph.PreviousStages()),
        dependencies_(schedule),
        end_s_(SimulateTimes(schedule, costs).end_s),
        next_(schedule.ranks.size(), 0),
        listed_(schedule.ranks.size()),
        last_(schedule.ranks.size()) {
    for (int op = 0; op < dependencies_.num_ops(); ++op) {
      missing_.push_back(static_cast<int>(dependencies_.ProducersOf(op).size()));
    }
    for (int rank = 0; rank < static_cast<int>(next_.size()); ++rank) PushIfReady(rank);
  }

  std::vector<std::vector<Op>> List() {
    for (std::vector<Op> made = ListSlot(); !made.empty(); made = ListSlot()) {
      for (const Op& op : made) {
        for (const int consumer : ConsumersOf(schedule_, previous_, op)) ListTransfer(op, consumer);
      }
    }
    return std::move(listed_);
  }

 private:
  // The ends of the last transfer that a rank lists; reset by a compute op.
  struct Last {
    int from = -1, to = -1;  // ranks
    bool operator==(const Last&) const = default;
  };

  int RankOf(int stage) const { return schedule_.graph.stages[stage].rank; }

  // A rank whose next op has its inputs listed, ordered by the time at which that op ends.
  struct Ready {
    double end_s = 0;
    int rank = 0;
    bool operator>(const Ready& other) const {
      return end_s != other.end_s ? end_s > other.end_s : rank > other.rank;
    }
  };

  int NumberOfNext(int rank) const { return dependencies_.First(rank) + next_[rank]; }

  void PushIfReady(int rank) {
    if (next_[rank] == static_cast<int>(schedule_.ranks[rank].size())) return;
    if (missing_[NumberOfNext(rank)] == 0) ready_.push({end_s_[rank][next_[rank]], rank});
  }

  // Lists, of the ops whose inputs are listed, those that end first; at most one a rank.
  std::vector<Op> ListSlot() {
    std::vector<int> slot;
    const double end = ready_.empty() ? 0 : ready_.top().end_s;
    for (; !ready_.empty() && ready_.top().end_s <= end; ready_.pop()) {
      slot.push_back(ready_.top().rank);
    }
    std::vector<Op> made;
    for (const int rank : slot) {
      const int number = NumberOfNext(rank);
      made.push_back(schedule_.ranks[rank][next_[rank]++]);
      listed_[rank].push_back(made.back());
      last_[rank] = {};
      PushIfReady(rank);
      for (const int consumer : dependencies_.ConsumersOf(number)) {
        if (--missing_[consumer] > 0) continue;
        const int consumer_rank = dependencies_.PlaceOf(consumer).rank;
        if (consumer == NumberOfNext(consumer_rank)) PushIfReady(consumer_rank);
      }
    }
    return made;
  }

  void ListTransfer(const Op& op, int consumer) {
    const int from = RankOf(op.stage), to = RankOf(consumer);
    if (from == to) return;
    const Last opposite{to, from};
    const bool joined = last_[from] == opposite && last_[to] == opposite;
    listed_[from].push_back({OpKind::kSend, op.stage, op.micro_batch, consumer, joined});
    listed_[to].push_back({OpKind::kRecv, consumer, op.micro_batch, op.stage, joined});
    last_[from] = last_[to] = {from, to};
  }

  const Schedule& schedule_;
  const std::vector<std::vector<int>> previous_;  // [stage]
  const Dependencies dependencies_;
  const std::vector<std::vector<double>> end_s_;
  std::vector<int> missing_;  // [op] its inputs that are not listed yet
  std::vector<int> next_;     // [rank] its first op that is not listed yet
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
  std::vector<std::vector<Op>> listed_;  // [rank]
  std::vector<Last> last_;               // [rank]
};

// By stage the earliest position of its REDUCE in a rank's list: after its last weight gradient and
// the transfers right after that, so that what other ranks wait for is sent first; for a stage
// without work, after the rank's last forward. A frozen encoder may run ahead of the step, behind
// it all.
std::vector<size_t> ReductionPlaces(const Schedule& schedule, const std::vector<Op>& list) {
  const StageGraph& graph = schedule.graph;
  std::vector<size_t> places(graph.stages.size(), 0);
  size_t behind_forwards = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].micro_batch >= schedule.own()) continue;  // of the next step
    const OpKind kind = list[i].kind == OpKind::kFree ? list[i].pass : list[i].kind;
    if (MakesWeightGradient(kind)) places[list[i].stage] = i + 1;
    const bool ahead = kind == OpKind::kEncoderForward && !graph.HasBackward(list[i].stage);
    if (IsForward(kind) && !ahead) behind_forwards = i + 1;
  }
  for (size_t& place : places) {
    place = std::max(place, behind_forwards);
    while (place < list.size() && IsTransfer(list[place].kind)) ++place;
  }
  return places;
}

}  // namespace

Schedule DropIdleOps(Schedule schedule, const StepWork& work) {
  schedule.work = work;
  for (std::vector<Op>& list : schedule.ranks) {
    std::vector<Op> left;
    bool without_first = false;  // a group of transfers whose first is dropped
    for (Op op : list) {
      without_first = without_first && op.joined;
      if (IsIdle(schedule, op)) {
        without_first = without_first || !op.joined;
        continue;
      }
      op.joined = op.joined && !without_first;
      without_first = false;
      left.push_back(op);
    }
    list = std::move(left);
  }
  return schedule;
}

Schedule AddGathers(Schedule schedule, ShardedState sharded) {
  for (std::vector<Op>& list : schedule.ranks) {
    std::vector<Op> listed;
    for (const Op& op : list) {
      const auto around = [&](OpKind kind) {
        return Op{kind, op.stage, op.micro_batch, -1, false, op.kind};
      };
      const StageNode& stage = schedule.graph.stages[op.stage];
      const bool reads = sharded == ShardedState::kParameters && IsCompute(op.kind) &&
                         op.kind != OpKind::kWeightGradient;
      const bool sums = MakesWeightGradient(op.kind) && stage.needs_weight_gradient;
      if (reads) listed.push_back(around(OpKind::kGather));
      listed.push_back(op);
      if (reads || (sums && sharded >= ShardedState::kGradients)) {
        listed.push_back(around(OpKind::kFree));
      }
    }
    list = std::move(listed);
  }
  return schedule;
}

Schedule AddTransfers(Schedule schedule, const SimulationCosts& costs) {
  for (const std::vector<Op>& list : schedule.ranks) {
    for (const Op& op : list) EQUIPOISE_CHECK(IsCompute(op.kind), ToString(op), " among the ops");
  }
  schedule.ranks = TransferLister(schedule, costs).List();
  return schedule;
}

Schedule AddReductions(Schedule schedule) {
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    std::vector<Op>& list = schedule.ranks[rank];
    const std::vector<size_t> places = ReductionPlaces(schedule, list);
    const std::vector<int> stages = schedule.graph.StagesOf(static_cast<int>(rank));
    size_t place = 0, added = 0;
    for (size_t i = stages.size(); i-- > 0;) {
      if (!schedule.graph.stages[stages[i]].needs_weight_gradient) continue;
      place = std::max(place, places[stages[i]]);
      list.insert(list.begin() + place + added++, {OpKind::kReduce, stages[i], 0});
    }
    list.push_back({OpKind::kOptimizer, 0, 0});
  }
  return schedule;
}

Schedule CompleteSchedule(Schedule schedule, const StepWork& work, const SimulationCosts& costs) {
  return AddReductions(AddTransfers(DropIdleOps(std::move(schedule), work), costs));
}

Schedule CompleteSharded(Schedule schedule, const StepWork& work, ShardedState sharded) {
  schedule = AddTransfers(DropIdleOps(std::move(schedule), {}), {});
  return AddReductions(DropIdleOps(AddGathers(std::move(schedule), sharded), work));
}

}  // namespace equipoise
