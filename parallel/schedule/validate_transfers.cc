#include "parallel/schedule/validate_transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "configs/base/error.h"
#include "parallel/schedule/fault_grid.h"

namespace equipoise {
namespace {

Op Unjoined(Op op) {
  op.joined = false;
  return op;
}

// The transfer as the rank at its other end lists it.
Op OtherEnd(const Op& op) {
  return {op.kind == OpKind::kSend ? OpKind::kRecv : OpKind::kSend, op.peer, op.micro_batch,
          op.stage};
}

class TransferChecker {
 public:
  TransferChecker(const Schedule& schedule, const OpIndex& index)
      : schedule_(schedule), index_(index) {}

  std::optional<ScheduleFault> Find() const {
    if (auto fault = EachOp(&TransferChecker::SuperfluousFault)) return fault;
    return EachOp(&TransferChecker::MissingFault);
  }

 private:
  using Check = std::optional<ScheduleFault> (TransferChecker::*)(const OpPlace&) const;

  std::optional<ScheduleFault> EachOp(Check check) const {
    for (size_t r = 0; r < schedule_.ranks.size(); ++r) {
      for (size_t p = 0; p < schedule_.ranks[r].size(); ++p) {
        const OpPlace place{static_cast<int>(r), static_cast<int>(p)};
        if (auto fault = (this->*check)(place)) return fault;
      }
    }
    return std::nullopt;
  }

  const Op& OpAt(const OpPlace& place) const { return schedule_.ranks[place.rank][place.position]; }
  int RankOf(int stage) const { return schedule_.graph.stages[stage].rank; }

  // Whether the output of stage `from` for a micro-batch, or its gradient, travels between ranks.
  bool Crosses(int from, int to, int micro_batch) const {
    if (RankOf(from) == RankOf(to)) return false;
    const std::vector<int>& next = schedule_.graph.stages[std::min(from, to)].next;
    if (std::find(next.begin(), next.end(), std::max(from, to)) == next.end()) return false;
    return from < to ? SendsRows(schedule_, from, to, micro_batch)
                     : SendsGradient(schedule_, from, to, micro_batch);
  }

  std::optional<ScheduleFault> SuperfluousFault(const OpPlace& place) const {
    const Op& op = OpAt(place);
    if (!IsTransfer(op.kind)) return std::nullopt;
    const bool sends = op.kind == OpKind::kSend;
    const int from = sends ? op.stage : op.peer, to = sends ? op.peer : op.stage;
    if (Crosses(from, to, op.micro_batch)) return std::nullopt;
    return FaultAt(schedule_, place,
                   fmt::format("nothing of micro-batch {} travels from stage {} to stage {}",
                               op.micro_batch, from, to));
  }

  // `place`: the compute op that produces or consumes the transferred value.
  std::optional<ScheduleFault> Require(const Op& transfer, const OpPlace& place) const {
    if (index_.Has(place.rank, transfer)) return std::nullopt;
    const bool sends = transfer.kind == OpKind::kSend;
    const Op other = OtherEnd(transfer);
    const bool paired = index_.Has(RankOf(transfer.peer), other);
    return FaultAt(schedule_, {place.rank, place.position + (sends ? 1 : 0)},
                   fmt::format("{} is missing, {}{}{}", ToString(transfer),
                               paired ? fmt::format("the other end of {}", ToString(other))
                                      : "as is its other end",
                               sends ? "; it has to stand after " : "; it has to stand before ",
                               ToString(OpAt(place))));
  }

  // The receive of a value that the next step takes: no op of this one asks for it.
  std::optional<ScheduleFault> RequireForNextStep(const Op& send, const OpPlace& place) const {
    const bool taken = send.peer > send.stage
                           ? RunsForward(schedule_, send.peer, send.micro_batch)
                           : RunsBackward(schedule_, send.peer, send.micro_batch);
    if (taken || index_.Has(RankOf(send.peer), OtherEnd(send))) return std::nullopt;
    return FaultAt(schedule_, place,
                   fmt::format("{} is missing, the other end of {}", ToString(OtherEnd(send)),
                               ToString(send)));
  }

  std::optional<ScheduleFault> MissingFault(const OpPlace& place) const {
    const Op& op = OpAt(place);
    if (!IsForward(op.kind) && !MakesInputGradient(op.kind)) return std::nullopt;
    std::vector<int> before = schedule_.graph.Previous(op.stage);
    std::vector<int> after = schedule_.graph.stages[op.stage].next;
    if (!IsForward(op.kind)) std::swap(before, after);
    for (int from : before) {
      const Op take{OpKind::kRecv, op.stage, op.micro_batch, from};
      if (!Crosses(from, op.stage, op.micro_batch)) continue;
      if (auto fault = Require(take, place)) return fault;
    }
    for (int to : after) {
      const Op give{OpKind::kSend, op.stage, op.micro_batch, to};
      if (!Crosses(op.stage, to, op.micro_batch)) continue;
      if (auto fault = Require(give, place)) return fault;
      if (auto fault = RequireForNextStep(give, place)) return fault;
    }
    return std::nullopt;
  }

  const Schedule& schedule_;
  const OpIndex& index_;
};

// The transfers of a rank with another, in its order. Transfers of one group start together: here
// those that the lower rank sends come first, and each direction keeps its order.
using Shared = std::map<std::pair<int, int>, std::vector<OpPlace>>;  // {rank, other}

Shared ListShared(const Schedule& schedule) {
  Shared shared;
  for (int r = 0; r < static_cast<int>(schedule.ranks.size()); ++r) {
    const std::vector<Op>& list = schedule.ranks[r];
    for (int begin = 0, end; begin < static_cast<int>(list.size()); begin = end) {
      end = begin + 1;
      while (end < static_cast<int>(list.size()) && list[end].joined) ++end;
      for (const bool from_lower : {true, false}) {
        for (int p = begin; p < end; ++p) {
          if (!IsTransfer(list[p].kind)) continue;
          const int other = schedule.graph.stages[list[p].peer].rank;
          const bool sends = list[p].kind == OpKind::kSend;
          if ((sends == (r < other)) == from_lower) shared[{r, other}].push_back({r, p});
        }
      }
    }
  }
  return shared;
}

}  // namespace

OpIndex::OpIndex(const Schedule& schedule) {
  for (const std::vector<Op>& list : schedule.ranks) {
    auto& sorted = ops_.emplace_back();
    sorted.reserve(list.size());
    for (const Op& op : list) sorted.emplace_back(Unjoined(op), static_cast<int>(sorted.size()));
    std::sort(sorted.begin(), sorted.end());
  }
}

std::vector<OpPlace> OpIndex::Places(int rank, const Op& op) const {
  const auto& sorted = ops_[rank];
  std::vector<OpPlace> places;
  const Op wanted = Unjoined(op);
  for (auto at = std::lower_bound(sorted.begin(), sorted.end(), std::make_pair(wanted, -1));
       at != sorted.end() && at->first == wanted; ++at) {
    places.push_back({rank, at->second});
  }
  return places;
}

std::optional<ScheduleFault> FindTransferFault(const Schedule& schedule, const OpIndex& index) {
  const auto any = [](const std::vector<Op>& list) {
    return std::any_of(list.begin(), list.end(), [](const Op& op) { return IsTransfer(op.kind); });
  };
  if (std::none_of(schedule.ranks.begin(), schedule.ranks.end(), any)) return std::nullopt;
  return TransferChecker(schedule, index).Find();
}

std::optional<ScheduleFault> FindTransferOrderFault(const Schedule& schedule) {
  const auto op_at = [&](const OpPlace& place) {
    return schedule.ranks[place.rank][place.position];
  };
  const Shared shared = ListShared(schedule);
  for (const auto& [ranks, mine] : shared) {
    const auto& [rank, other] = ranks;
    if (rank > other) continue;
    const std::vector<OpPlace>& theirs = shared.at({other, rank});
    for (size_t i = 0; i < mine.size(); ++i) {
      const Op there = op_at(theirs[i]);
      if (Unjoined(op_at(mine[i])) == OtherEnd(there)) continue;
      return FaultAt(schedule, mine[i],
                     fmt::format("rank {} lists {} (op {}) in its place; two ranks that list what "
                                 "they share in different orders wait for each other",
                                 other, ToString(there), theirs[i].position));
    }
  }
  return std::nullopt;
}

}  // namespace equipoise
