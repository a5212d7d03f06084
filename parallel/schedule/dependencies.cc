#include "parallel/schedule/dependencies.h"

#include <algorithm>

namespace equipoise {
namespace {

constexpr int kNone = -1;

// Which op makes what, in tables over (stage or edge, micro-batch). The first op of those that make
// the same counts.
class MakerTable {
 public:
  explicit MakerTable(const Schedule& schedule)
      : schedule_(schedule),
        previous_(schedule.graph.PreviousStages()),
        micro_batches_(std::max(schedule.micro_batches, 0)) {
    const int stages = schedule.graph.num_stages();
    for (int stage = 0; stage < stages; ++stage) {
      first_edge_.push_back(edges_);
      edges_ += static_cast<int>(NeighboursOf(stage));
    }
    forward_.assign(Slots(stages), kNone);
    backward_.assign(Slots(stages), kNone);
    send_.assign(Slots(edges_), kNone);
    receive_.assign(Slots(edges_), kNone);
    weight_gradients_.resize(stages);
    reductions_.resize(schedule.ranks.size());
  }

  bool IsKnown(const Op& op) const {
    return op.stage >= 0 && op.stage < schedule_.graph.num_stages() && op.micro_batch >= 0 &&
           op.micro_batch < micro_batches_;
  }

  void Add(const Op& op, int rank, int number) {
    if (!IsKnown(op)) return;
    if (int* slot = SlotOf(op); slot != nullptr && *slot == kNone) *slot = number;
    if (MakesWeightGradient(op.kind)) weight_gradients_[op.stage].push_back(number);
    if (op.kind == OpKind::kReduce) reductions_[rank].push_back(number);
  }

  // Appends the numbers of the ops whose results `op` takes.
  void AppendMakers(const Op& op, int rank, std::vector<int>& makers) const {
    if (!IsKnown(op)) return;
    const int stage = op.stage, m = op.micro_batch;
    if (IsForward(op.kind)) {
      for (const int before : previous_[stage]) {
        if (SendsRows(schedule_, before, stage, m)) AppendArrival(forward_, before, op, makers);
      }
    } else if (MakesInputGradient(op.kind)) {
      Append(forward_[Slot(stage, m)], makers);
      for (const int after : schedule_.graph.stages[stage].next) {
        if (SendsGradient(schedule_, after, stage, m)) {
          AppendArrival(backward_, after, op, makers);
        }
      }
    } else if (op.kind == OpKind::kWeightGradient) {
      Append(backward_[Slot(stage, m)], makers);
    } else if (op.kind == OpKind::kSend) {
      Append((op.peer > stage ? forward_ : backward_)[Slot(stage, m)], makers);
    } else if (op.kind == OpKind::kRecv) {
      const int edge = Edge(op.peer, stage);
      if (edge != kNone) Append(send_[Slot(edge, m)], makers);
    } else {
      const auto& all = op.kind == OpKind::kReduce ? weight_gradients_[stage] : reductions_[rank];
      makers.insert(makers.end(), all.begin(), all.end());
    }
  }

 private:
  size_t Slots(int rows) const { return static_cast<size_t>(rows) * micro_batches_; }
  size_t Slot(int row, int micro_batch) const {
    return static_cast<size_t>(row) * micro_batches_ + micro_batch;
  }
  size_t NeighboursOf(int stage) const {
    return schedule_.graph.stages[stage].next.size() + previous_[stage].size();
  }

  // The number of the edge from a stage to one before or after it; kNone where there is none.
  int Edge(int from, int to) const {
    if (from < 0 || from >= schedule_.graph.num_stages()) return kNone;
    int edge = first_edge_[from];
    for (const int next : schedule_.graph.stages[from].next) {
      if (next == to) return edge;
      ++edge;
    }
    for (const int previous : previous_[from]) {
      if (previous == to) return edge;
      ++edge;
    }
    return kNone;
  }

  // Where the table holds who makes the same as `op`; null for what nothing looks up there.
  int* SlotOf(const Op& op) {
    const int m = op.micro_batch;
    if (IsForward(op.kind)) return &forward_[Slot(op.stage, m)];
    if (MakesInputGradient(op.kind)) return &backward_[Slot(op.stage, m)];
    if (!IsTransfer(op.kind)) return nullptr;
    const int edge = Edge(op.stage, op.peer);
    if (edge == kNone) return nullptr;
    return op.kind == OpKind::kSend ? &send_[Slot(edge, m)] : &receive_[Slot(edge, m)];
  }

  static void Append(int number, std::vector<int>& makers) {
    if (number != kNone) makers.push_back(number);
  }

  // What stage `from` made for `taker`: its R where that is listed, else the op that made it.
  void AppendArrival(const std::vector<int>& made, int from, const Op& taker,
                     std::vector<int>& makers) const {
    const auto& stages = schedule_.graph.stages;
    const int m = taker.micro_batch;
    if (stages[from].rank != stages[taker.stage].rank) {
      const int receive = receive_[Slot(Edge(taker.stage, from), m)];
      if (receive != kNone) return makers.push_back(receive);
    }
    Append(made[Slot(from, m)], makers);
  }

  const Schedule& schedule_;
  const std::vector<std::vector<int>> previous_;  // [stage]
  int micro_batches_;
  int edges_ = 0;
  std::vector<int> first_edge_;                     // [stage]: to `next`, then to those before it
  std::vector<int> forward_, backward_;             // [stage][micro-batch] F or V; B, I or U
  std::vector<int> send_, receive_;                 // [edge from its own stage][micro-batch]
  std::vector<std::vector<int>> weight_gradients_;  // [stage]
  std::vector<std::vector<int>> reductions_;        // [rank]
};

}  // namespace

Dependencies::Dependencies(const Schedule& schedule) : rank_first_(schedule.ranks.size() + 1, 0) {
  const int ranks = static_cast<int>(schedule.ranks.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const int ops = static_cast<int>(schedule.ranks[rank].size());
    rank_first_[rank + 1] = rank_first_[rank] + ops;
    for (int position = 0; position < ops; ++position) places_.push_back({rank, position});
  }
  MakerTable table(schedule);
  for (int op = 0; op < num_ops(); ++op) {
    const OpPlace& place = places_[op];
    table.Add(schedule.ranks[place.rank][place.position], place.rank, op);
  }
  maker_first_.reserve(places_.size() + 1);
  makers_.reserve(2 * places_.size());
  for (const OpPlace& place : places_) {
    maker_first_.push_back(static_cast<int>(makers_.size()));
    table.AppendMakers(schedule.ranks[place.rank][place.position], place.rank, makers_);
  }
  maker_first_.push_back(static_cast<int>(makers_.size()));
  LinkTakers();
}

// Turns "what an op takes" into "who takes an op's result".
void Dependencies::LinkTakers() {
  taker_first_.assign(places_.size() + 1, 0);
  for (const int made : makers_) ++taker_first_[made + 1];
  for (size_t i = 1; i < taker_first_.size(); ++i) taker_first_[i] += taker_first_[i - 1];
  takers_.resize(makers_.size());
  std::vector<int> fill(taker_first_.begin(), taker_first_.end() - 1);
  for (int taker = 0; taker < num_ops(); ++taker) {
    for (const int made : ProducersOf(taker)) takers_[fill[made]++] = taker;
  }
}

}  // namespace equipoise
