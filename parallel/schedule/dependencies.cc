// Two passes over the ops. The first fills a table from what an op produces, (stage, micro-batch)
// or (edge, micro-batch), to its number; the second looks up the inputs of every op there. So
// producers may be listed after their consumers, or not at all, as in a schedule that is still to
// be validated. The edges are stored as two compressed sparse rows, producers by op and consumers
// by op, the second being the transpose of the first. O(ops + edges) time and memory.

#include "parallel/schedule/dependencies.h"

#include <algorithm>

namespace equipoise {
namespace {

constexpr int kNone = -1;

// The op that produces each value, in tables over (stage or edge, micro-batch). Of several that
// produce the same value the first counts.
class ProducerTable {
 public:
  explicit ProducerTable(const Schedule& schedule)
      : schedule_(schedule),
        previous_(schedule.graph.PreviousStages()),
        micro_batches_(std::max(schedule.micro_batches, 0)) {
    const int stages = schedule.graph.num_stages();
    for (int stage = 0; stage < stages; ++stage) {
      first_edge_.push_back(edges_);
      edges_ += static_cast<int>(NeighboursOf(stage));
    }
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
    const bool own = op.micro_batch < schedule_.own();
    if (own && MakesWeightGradient(op.kind)) weight_gradients_[op.stage].push_back(number);
    if (op.kind == OpKind::kReduce) reductions_[rank].push_back(number);
  }

  // Appends the numbers of the ops whose results `op` takes.
  void AppendProducers(const Op& op, int rank, std::vector<int>& producers) const {
    if (!IsKnown(op)) return;
    const int stage = op.stage, m = op.micro_batch;
    if (op.kind == OpKind::kGather) return;
    if (IsForward(op.kind)) {
      Append(At(gather_forward_, stage, m), producers);
      for (const int before : previous_[stage]) {
        if (SendsRows(schedule_, before, stage, m)) AppendArrival(forward_, before, op, producers);
      }
    } else if (MakesInputGradient(op.kind)) {
      Append(At(forward_, stage, m), producers);
      Append(At(gather_backward_, stage, m), producers);
      for (const int after : schedule_.graph.stages[stage].next) {
        if (SendsGradient(schedule_, after, stage, m)) {
          AppendArrival(backward_, after, op, producers);
        }
      }
    } else if (op.kind == OpKind::kWeightGradient) {
      Append(At(backward_, stage, m), producers);
    } else if (op.kind == OpKind::kFree) {
      // Of W its I stands for it: no table has W by micro-batch, and the list has it in order.
      Append(At(IsForward(op.pass) ? forward_ : backward_, stage, m), producers);
    } else if (op.kind == OpKind::kSend) {
      Append(At(op.peer > stage ? forward_ : backward_, stage, m), producers);
    } else if (op.kind == OpKind::kRecv) {
      const int edge = Edge(op.peer, stage);
      if (edge != kNone) Append(At(send_, edge, m), producers);
    } else {
      const auto& all = op.kind == OpKind::kReduce ? weight_gradients_[stage] : reductions_[rank];
      producers.insert(producers.end(), all.begin(), all.end());
    }
  }

 private:
  size_t Slot(int row, int micro_batch) const {
    return static_cast<size_t>(row) * micro_batches_ + micro_batch;
  }
  int At(const std::vector<int>& table, int row, int micro_batch) const {
    return table.empty() ? kNone : table[Slot(row, micro_batch)];
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

  // The table's slot for what `op` produces; null for ops that nothing looks up by it. A table is
  // made for the first that it has: a search's schedules have neither transfers nor gathers.
  int* SlotOf(const Op& op) {
    const auto slot = [&](std::vector<int>& table, int rows, int row) {
      if (table.empty()) table.assign(Slot(rows, 0), kNone);
      return &table[Slot(row, op.micro_batch)];
    };
    const int stages = schedule_.graph.num_stages();
    if (IsForward(op.kind)) return slot(forward_, stages, op.stage);
    if (MakesInputGradient(op.kind)) return slot(backward_, stages, op.stage);
    if (op.kind == OpKind::kGather) {
      return slot(IsForward(op.pass) ? gather_forward_ : gather_backward_, stages, op.stage);
    }
    if (!IsTransfer(op.kind)) return nullptr;
    const int edge = Edge(op.stage, op.peer);
    if (edge == kNone) return nullptr;
    return slot(op.kind == OpKind::kSend ? send_ : receive_, edges_, edge);
  }

  static void Append(int number, std::vector<int>& producers) {
    if (number != kNone) producers.push_back(number);
  }

  // Where `consumer` gets the output of stage `from`: its R where that is listed, else the
  // producer.
  void AppendArrival(const std::vector<int>& made, int from, const Op& consumer,
                     std::vector<int>& producers) const {
    const auto& stages = schedule_.graph.stages;
    const int m = consumer.micro_batch;
    if (!receive_.empty() && stages[from].rank != stages[consumer.stage].rank) {
      const int receive = receive_[Slot(Edge(consumer.stage, from), m)];
      if (receive != kNone) return producers.push_back(receive);
    }
    Append(At(made, from, m), producers);
  }

  const Schedule& schedule_;
  const std::vector<std::vector<int>> previous_;  // [stage]
  int micro_batches_;
  int edges_ = 0;
  std::vector<int> first_edge_;                        // [stage]: edges to `next`, then to previous
  std::vector<int> forward_, backward_;                // [stage][micro-batch] F or V; B, I or U
  std::vector<int> gather_forward_, gather_backward_;  // [stage][micro-batch]
  std::vector<int> send_, receive_;                    // [edge from its own stage][micro-batch]
  std::vector<std::vector<int>> weight_gradients_;     // [stage]
  std::vector<std::vector<int>> reductions_;           // [rank]
};

}  // namespace

Dependencies::Dependencies(const Schedule& schedule) : rank_first_(schedule.ranks.size() + 1, 0) {
  const int ranks = static_cast<int>(schedule.ranks.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const int ops = static_cast<int>(schedule.ranks[rank].size());
    rank_first_[rank + 1] = rank_first_[rank] + ops;
    for (int position = 0; position < ops; ++position) places_.push_back({rank, position});
  }
  ProducerTable table(schedule);
  for (int op = 0; op < num_ops(); ++op) {
    const OpPlace& place = places_[op];
    table.Add(schedule.ranks[place.rank][place.position], place.rank, op);
  }
  producer_first_.reserve(places_.size() + 1);
  producers_.reserve(2 * places_.size());
  for (const OpPlace& place : places_) {
    producer_first_.push_back(static_cast<int>(producers_.size()));
    table.AppendProducers(schedule.ranks[place.rank][place.position], place.rank, producers_);
  }
  producer_first_.push_back(static_cast<int>(producers_.size()));
  LinkConsumers();
}

// Transposes the producers of each op into the consumers of each op (counting sort).
void Dependencies::LinkConsumers() {
  consumer_first_.assign(places_.size() + 1, 0);
  for (const int made : producers_) ++consumer_first_[made + 1];
  for (size_t i = 1; i < consumer_first_.size(); ++i) consumer_first_[i] += consumer_first_[i - 1];
  consumers_.resize(producers_.size());
  std::vector<int> fill(consumer_first_.begin(), consumer_first_.end() - 1);
  for (int consumer = 0; consumer < num_ops(); ++consumer) {
    for (const int made : ProducersOf(consumer)) consumers_[fill[made]++] = consumer;
  }
}

}  // namespace equipoise
