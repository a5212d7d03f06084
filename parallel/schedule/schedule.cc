#include "parallel/schedule/schedule.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace equipoise {
namespace {

// Lists the ops by what they make, and looks up who made what an op takes.
class Makers {
 public:
  explicit Makers(const Schedule& schedule) : schedule_(schedule) {
    for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      for (size_t position = 0; position < schedule.ranks[rank].size(); ++position) {
        const Op& op = schedule.ranks[rank][position];
        if (!IsKnown(op)) continue;
        const OpPlace place{static_cast<int>(rank), static_cast<int>(position)};
        places_.emplace(KeyOf(op.kind, op.stage, op.micro_batch, op.peer), place);
        if (MakesWeightGradient(op.kind)) weight_gradients_[op.stage].push_back(place);
        if (op.kind == OpKind::kReduce) reductions_[place.rank].push_back(place);
      }
    }
  }

  std::vector<OpPlace> For(const Op& op, int rank) const {
    std::vector<OpPlace> made;
    if (!IsKnown(op)) return made;
    const int stage = op.stage, m = op.micro_batch;
    if (IsForward(op.kind)) {
      for (const int before : schedule_.graph.Previous(stage)) {
        if (SendsRows(schedule_, before, stage, m)) AddArrival(OpKind::kForward, before, op, made);
      }
    } else if (MakesInputGradient(op.kind)) {
      Add(OpKind::kForward, stage, m, -1, made);
      for (const int after : schedule_.graph.stages[stage].next) {
        if (SendsGradient(schedule_, after, stage, m)) {
          AddArrival(OpKind::kBackward, after, op, made);
        }
      }
    } else if (op.kind == OpKind::kWeightGradient) {
      Add(OpKind::kInputGradient, stage, m, -1, made);
    } else if (op.kind == OpKind::kSend) {
      Add(op.peer > stage ? OpKind::kForward : OpKind::kBackward, stage, m, -1, made);
    } else if (op.kind == OpKind::kRecv) {
      Add(OpKind::kSend, op.peer, m, stage, made);
    } else {
      const auto& lists = op.kind == OpKind::kReduce ? weight_gradients_ : reductions_;
      const auto list = lists.find(op.kind == OpKind::kReduce ? stage : rank);
      if (list != lists.end()) made = list->second;
    }
    return made;
  }

 private:
  using Key = std::tuple<OpKind, int, int, int>;

  // F and V make the same, as do B, I and U.
  static Key KeyOf(OpKind kind, int stage, int micro_batch, int peer) {
    if (IsForward(kind)) kind = OpKind::kForward;
    if (MakesInputGradient(kind)) kind = OpKind::kBackward;
    return {kind, stage, micro_batch, peer};
  }

  bool IsKnown(const Op& op) const {
    return op.stage >= 0 && op.stage < schedule_.graph.num_stages() && op.micro_batch >= 0 &&
           op.micro_batch < schedule_.micro_batches;
  }

  bool Add(OpKind kind, int stage, int micro_batch, int peer, std::vector<OpPlace>& made) const {
    const auto place = places_.find(KeyOf(kind, stage, micro_batch, peer));
    if (place != places_.end()) made.push_back(place->second);
    return place != places_.end();
  }

  // What stage `from` made for `taker`: its R where that is listed, else the op that made it.
  void AddArrival(OpKind kind, int from, const Op& taker, std::vector<OpPlace>& made) const {
    const auto& stages = schedule_.graph.stages;
    const bool crosses = stages[from].rank != stages[taker.stage].rank;
    if (crosses && Add(OpKind::kRecv, taker.stage, taker.micro_batch, from, made)) return;
    Add(kind, from, taker.micro_batch, -1, made);
  }

  const Schedule& schedule_;
  std::map<Key, OpPlace> places_;
  std::map<int, std::vector<OpPlace>> weight_gradients_;  // by stage
  std::map<int, std::vector<OpPlace>> reductions_;        // by rank
};

}  // namespace

bool SendsRows(const Schedule& schedule, int from, int to, int micro_batch) {
  return schedule.work.Sends(from, micro_batch) && schedule.work.Runs(to, micro_batch);
}

bool SendsGradient(const Schedule& schedule, int from, int to, int micro_batch) {
  return SendsRows(schedule, to, from, micro_batch) &&
         schedule.graph.stages[from].needs_input_gradient && schedule.graph.HasBackward(to);
}

std::vector<int> TakersOf(const Schedule& schedule, const Op& op) {
  std::vector<int> takers;
  if (IsForward(op.kind)) {
    for (const int next : schedule.graph.stages[op.stage].next) {
      if (SendsRows(schedule, op.stage, next, op.micro_batch)) takers.push_back(next);
    }
  } else if (MakesInputGradient(op.kind)) {
    for (const int previous : schedule.graph.Previous(op.stage)) {
      if (SendsGradient(schedule, op.stage, previous, op.micro_batch)) takers.push_back(previous);
    }
  }
  return takers;
}

std::vector<std::vector<std::vector<OpPlace>>> Dependencies(const Schedule& schedule) {
  const Makers makers(schedule);
  std::vector<std::vector<std::vector<OpPlace>>> all;
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    auto& list = all.emplace_back();
    for (const Op& op : schedule.ranks[rank]) {
      list.push_back(makers.For(op, static_cast<int>(rank)));
    }
  }
  return all;
}

}  // namespace equipoise
