#include "parallel/schedule/passes.h"

#include <algorithm>
#include <utility>

#include "configs/error.h"

namespace equipoise {
namespace {

bool IsIdle(const Schedule& schedule, const Op& op) {
  if (!IsCompute(op.kind)) return false;
  if (!schedule.work.Runs(op.stage, op.micro_batch)) return true;
  if (IsForward(op.kind)) return false;
  return op.kind == OpKind::kWeightGradient ? !schedule.graph.stages[op.stage].needs_weight_gradient
                                            : !schedule.graph.HasBackward(op.stage);
}

// Lists the ops of a schedule anew, in an order of all ranks together in which nothing waits for
// what comes later. An S and its R are listed at one point of that order, right after the op whose
// result they move. So whichever ranks have got however far, the earliest entry of the order that
// is not done can run: nothing deadlocks, however many transfers block.
class TransferLister {
 public:
  TransferLister(const Schedule& schedule, const SimulationCosts& costs)
      : schedule_(schedule),
        dependencies_(Dependencies(schedule)),
        end_s_(Simulate(schedule, costs).end_s),
        next_(schedule.ranks.size(), 0),
        listed_(schedule.ranks.size()),
        last_(schedule.ranks.size()) {}

  std::vector<std::vector<Op>> List() {
    for (std::vector<Op> made = ListSlot(); !made.empty(); made = ListSlot()) {
      for (const Op& op : made) {
        for (const int taker : TakersOf(schedule_, op)) ListTransfer(op, taker);
      }
    }
    return std::move(listed_);
  }

 private:
  // The other end of the last transfer that a rank lists, until a compute op follows.
  struct Last {
    int from = -1, to = -1;  // ranks
    bool operator==(const Last&) const = default;
  };

  int RankOf(int stage) const { return schedule_.graph.stages[stage].rank; }

  bool IsReady(int rank) const {
    if (next_[rank] == schedule_.ranks[rank].size()) return false;
    const auto& takes = dependencies_[rank][next_[rank]];
    return std::all_of(takes.begin(), takes.end(), [&](const OpPlace& place) {
      return static_cast<size_t>(place.position) < next_[place.rank];
    });
  }

  double EndOf(int rank) const { return end_s_[rank][next_[rank]]; }

  // Of the ops whose inputs are listed, lists those that end first, one a rank at most.
  std::vector<Op> ListSlot() {
    std::vector<int> ready;
    for (int rank = 0; rank < static_cast<int>(next_.size()); ++rank) {
      if (IsReady(rank)) ready.push_back(rank);
    }
    std::vector<Op> made;
    if (ready.empty()) return made;
    const auto sooner = [&](int a, int b) { return EndOf(a) < EndOf(b); };
    const double end = EndOf(*std::min_element(ready.begin(), ready.end(), sooner));
    for (const int rank : ready) {
      if (EndOf(rank) > end) continue;
      made.push_back(schedule_.ranks[rank][next_[rank]++]);
      listed_[rank].push_back(made.back());
      last_[rank] = {};
    }
    return made;
  }

  void ListTransfer(const Op& op, int taker) {
    const int from = RankOf(op.stage), to = RankOf(taker);
    if (from == to) return;
    const Last opposite{to, from};
    const bool joined = last_[from] == opposite && last_[to] == opposite;
    listed_[from].push_back({OpKind::kSend, op.stage, op.micro_batch, taker, joined});
    listed_[to].push_back({OpKind::kRecv, taker, op.micro_batch, op.stage, joined});
    last_[from] = last_[to] = {from, to};
  }

  const Schedule& schedule_;
  const std::vector<std::vector<std::vector<OpPlace>>> dependencies_;
  const std::vector<std::vector<double>> end_s_;
  std::vector<size_t> next_;             // [rank] its first op that is not listed yet
  std::vector<std::vector<Op>> listed_;  // [rank]
  std::vector<Last> last_;               // [rank]
};

// Where the rank's list may hold a stage's reduction: behind its last weight gradient and the
// transfers right after that, so that what others wait for leaves first; for a stage that had no
// work, behind the rank's last forward.
size_t ReductionPlace(const std::vector<Op>& list, int stage) {
  size_t place = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    const bool own = MakesWeightGradient(list[i].kind) && list[i].stage == stage;
    if (own || IsForward(list[i].kind)) place = i + 1;
  }
  while (place < list.size() && IsTransfer(list[place].kind)) ++place;
  return place;
}

}  // namespace

Schedule DropIdleOps(Schedule schedule, const StepWork& work) {
  schedule.work = work;
  for (std::vector<Op>& list : schedule.ranks) {
    std::erase_if(list, [&](const Op& op) { return IsIdle(schedule, op); });
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
    const std::vector<int> stages = schedule.graph.StagesOf(static_cast<int>(rank));
    size_t place = 0;
    for (size_t i = stages.size(); i-- > 0;) {
      if (!schedule.graph.stages[stages[i]].needs_weight_gradient) continue;
      place = std::max(place, ReductionPlace(list, stages[i]));
      list.insert(list.begin() + place++, {OpKind::kReduce, stages[i], 0});
    }
    list.push_back({OpKind::kOptimizer, 0, 0});
  }
  return schedule;
}

Schedule CompleteSchedule(Schedule schedule, const StepWork& work, const SimulationCosts& costs) {
  return AddReductions(AddTransfers(DropIdleOps(std::move(schedule), work), costs));
}

}  // namespace equipoise
