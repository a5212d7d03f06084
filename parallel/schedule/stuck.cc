// Deadlock freedom with blocking transfers. Every rank runs its list; a transfer, or a group of
// joined transfers, completes when all its other ends have been reached too. Completion is
// monotone: a step that can be done stays possible whatever other ranks do, so any order of
// simulation reaches the same set of done ops, and one run decides. Small messages hide a wrong
// order in practice, because they are buffered; this does not. O(ops + edges): a rank is looked at
// again only when an op that it waits for is done.

#include <algorithm>

#include "parallel/schedule/dependencies.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {
namespace {

// A schedule run without times, every transfer a rendezvous.
class Rendezvous {
 public:
  explicit Rendezvous(const Schedule& schedule) : schedule_(schedule), dependencies_(schedule) {
    for (const std::vector<Op>& list : schedule.ranks) {
      next_.push_back(0);
      done_.emplace_back(list.size(), false);
      posted_.emplace_back(list.size(), false);
      other_end_.emplace_back(list.size(), OpPlace{-1, -1});
      waiters_.emplace_back(list.size());
    }
    for (size_t r = 0; r < schedule.ranks.size(); ++r) {
      for (size_t p = 0; p < schedule.ranks[r].size(); ++p) {
        if (schedule.ranks[r][p].kind != OpKind::kRecv) continue;
        const OpPlace receive{static_cast<int>(r), static_cast<int>(p)};
        const auto producers = dependencies_.ProducersOf(dependencies_.Number(receive));
        if (producers.empty()) continue;
        const OpPlace send = dependencies_.PlaceOf(producers.front());
        other_end_[r][p] = send;
        other_end_[send.rank][send.position] = receive;
      }
    }
  }

  std::vector<OpPlace> Run() {
    const int ranks = static_cast<int>(schedule_.ranks.size());
    for (int r = ranks - 1; r >= 0; --r) ready_.push_back(r);
    while (!ready_.empty()) {
      const int rank = ready_.back();
      ready_.pop_back();
      while (RunSlot(rank)) continue;
    }
    std::vector<OpPlace> stuck;
    for (int r = 0; r < ranks; ++r) {
      int position = next_[r];
      const int end = static_cast<int>(schedule_.ranks[r].size());
      while (position < end && done_[r][position]) ++position;  // of a group: the first not done
      if (next_[r] < end) stuck.push_back({r, position});
    }
    return stuck;
  }

 private:
  // Runs the op, or the group of transfers, that the rank has reached; false if it has to wait.
  bool RunSlot(int rank) {
    const std::vector<Op>& list = schedule_.ranks[rank];
    const int begin = next_[rank];
    if (begin == static_cast<int>(list.size())) return false;
    int end = begin + 1;
    if (IsTransfer(list[begin].kind)) {
      while (end < static_cast<int>(list.size()) && list[end].joined) ++end;
      for (int p = begin; p < end; ++p) Post({rank, p});
      const auto first = done_[rank].begin();
      if (!std::all_of(first + begin, first + end, [](bool done) { return done; })) return false;
    } else {
      if (!HasInputs({rank, begin})) return false;
      Finish({rank, begin});
    }
    next_[rank] = end;
    return true;
  }

  bool HasInputs(const OpPlace& place) {
    for (const int number : dependencies_.ProducersOf(dependencies_.Number(place))) {
      const OpPlace made = dependencies_.PlaceOf(number);
      if (done_[made.rank][made.position]) continue;
      waiters_[made.rank][made.position].push_back(place.rank);
      return false;
    }
    return true;
  }

  void Post(const OpPlace& place) {
    if (posted_[place.rank][place.position]) return;
    const OpPlace& other = other_end_[place.rank][place.position];
    if (other.rank < 0) return;
    const bool sends = schedule_.ranks[place.rank][place.position].kind == OpKind::kSend;
    if (sends && !HasInputs(place)) return;
    posted_[place.rank][place.position] = true;
    if (!posted_[other.rank][other.position]) return;
    Finish(place);
    Finish(other);
    ready_.push_back(other.rank);
  }

  void Finish(const OpPlace& place) {
    done_[place.rank][place.position] = true;
    std::vector<int>& waiters = waiters_[place.rank][place.position];
    ready_.insert(ready_.end(), waiters.begin(), waiters.end());
    waiters.clear();
  }

  const Schedule& schedule_;
  const Dependencies dependencies_;
  std::vector<int> next_;                               // [rank] where its op or group begins
  std::vector<std::vector<bool>> done_, posted_;        // [rank][position]
  std::vector<std::vector<OpPlace>> other_end_;         // [rank][position] of transfers
  std::vector<std::vector<std::vector<int>>> waiters_;  // ranks that wait for the op
  std::vector<int> ready_;                              // ranks that may go on
};

}  // namespace

std::vector<OpPlace> StuckWithBlockingTransfers(const Schedule& schedule) {
  return Rendezvous(schedule).Run();
}

}  // namespace equipoise
