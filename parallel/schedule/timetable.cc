// Forwards are deferred in an order in which each op comes after all that wait for it: its
// consumers, and the op after it on its rank. An op's latest start is then a minimum over starts
// that are settled. Backwards and weight gradients keep the times of the simulation. O(ops +
// edges).

#include "parallel/schedule/timetable.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "configs/base/error.h"
#include "parallel/schedule/dependencies.h"

namespace equipoise {
namespace {

class Deferral {
 public:
  Deferral(const Schedule& schedule, const SimulationCosts& costs, Timetable& times)
      : schedule_(schedule), costs_(costs), dependencies_(schedule), times_(times) {
    for (int op = 0; op < dependencies_.num_ops(); ++op) {
      waiting_.push_back(static_cast<int>(dependencies_.ConsumersOf(op).size()) +
                         (HasNext(op) ? 1 : 0));
      if (waiting_.back() == 0) settled_.push_back(op);
    }
  }

  void Run() {
    size_t done = 0;
    for (; !settled_.empty(); ++done) {
      const int op = settled_.back();
      settled_.pop_back();
      if (IsForward(OpAt(op).kind)) Defer(op);
      for (const int producer : dependencies_.ProducersOf(op)) Settle(producer);
      if (dependencies_.PlaceOf(op).position > 0) Settle(op - 1);
    }
    EQUIPOISE_CHECK(done == waiting_.size(), "a schedule that ran has a cycle");
  }

 private:
  const Op& OpAt(int op) const {
    const OpPlace place = dependencies_.PlaceOf(op);
    return schedule_.ranks[place.rank][place.position];
  }
  bool HasNext(int op) const {
    return op + 1 < dependencies_.First(dependencies_.PlaceOf(op).rank + 1);
  }
  double StartOf(int op) const {
    const OpPlace place = dependencies_.PlaceOf(op);
    return times_.start_s[place.rank][place.position];
  }

  void Settle(int op) {
    if (--waiting_[op] == 0) settled_.push_back(op);
  }

  void Defer(int op) {
    const OpPlace place = dependencies_.PlaceOf(op);
    double latest = std::numeric_limits<double>::infinity();
    for (const int consumer : dependencies_.ConsumersOf(op)) {
      const Op& made = OpAt(op);
      const Op send{OpKind::kSend, made.stage, made.micro_batch, OpAt(consumer).stage};
      latest = std::min(latest, StartOf(consumer) - TransferSeconds(schedule_, costs_, send));
    }
    if (latest == std::numeric_limits<double>::infinity()) return;
    if (HasNext(op)) latest = std::min(latest, StartOf(op + 1));
    double& start = times_.start_s[place.rank][place.position];
    double& end = times_.end_s[place.rank][place.position];
    if (latest <= end) return;
    start = std::max(start, latest - (end - start));
    end = latest;
  }

  const Schedule& schedule_;
  const SimulationCosts& costs_;
  const Dependencies dependencies_;
  Timetable& times_;
  std::vector<int> waiting_;  // [op] what waits for it and is not settled yet
  std::vector<int> settled_;  // ops all of whose waiters are
};

}  // namespace

double TransferSeconds(const Schedule& schedule, const SimulationCosts& costs, const Op& send) {
  const int from = schedule.graph.stages[send.stage].rank;
  const int to = schedule.graph.stages[send.peer].rank;
  if (from == to || !costs.link) return 0;
  const LinkModel link = costs.link(from, to);
  double seconds = link.latency_s;
  if (link.bytes_per_s > 0 && costs.bytes) seconds += costs.bytes(send) / link.bytes_per_s;
  return seconds;
}

Timetable MakeTimetable(const Schedule& schedule, const SimulationCosts& costs, int first_stage) {
  Simulation simulated = SimulateTimes(schedule, costs);
  Timetable times;
  times.step_s = simulated.step_s;
  times.start_s = std::move(simulated.start_s);
  times.end_s = std::move(simulated.end_s);
  Deferral(schedule, costs, times).Run();
  times.forward_s.assign(schedule.micro_batches, 0);
  times.backward_s.assign(schedule.micro_batches, 0);
  const int rank = schedule.graph.stages[first_stage].rank;
  for (size_t p = 0; p < schedule.ranks[rank].size(); ++p) {
    const Op& op = schedule.ranks[rank][p];
    if (op.stage != first_stage) continue;
    if (IsForward(op.kind)) times.forward_s[op.micro_batch] = times.start_s[rank][p];
    if (MakesInputGradient(op.kind)) times.backward_s[op.micro_batch] = times.end_s[rank][p];
  }
  return times;
}

}  // namespace equipoise
