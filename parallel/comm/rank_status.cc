// Blame by following the wait-for graph. Each rank publishes whom it waits for; from the missing
// peer the chain is followed until it reaches a rank that cannot go on by itself (stopped, left,
// failed), one that computes and has not entered the operation, or a rank that is already on the
// chain: a cycle, which means that the ranks' orders of operations differ. Statuses are heartbeats,
// so a chain may be some heartbeats old; a rank that stopped, or failed, is looked for first among
// all. O(ranks).

#include "parallel/comm/rank_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace equipoise {
namespace {

using Phase = RankStatus::Phase;

std::string Name(int rank) { return fmt::format("rank {}", rank); }

// "; it was at 3B5, layers.0 to .3"
std::string At(const char* was, const RankStatus& status) {
  return status.computes[0] ? fmt::format("; it {} at {}", was, status.computes) : "";
}

std::optional<FailureReport> IfLost(int rank, const RankViews& views, const Liveness& liveness) {
  const RankView& view = views[rank];
  if (view.status.phase == Phase::kLeft) return FailureReport{rank, Name(rank) + " has left"};
  if (view.status.phase != Phase::kRunning)
    return FailureReport{view.status.faulty_rank, view.status.failure};
  const auto unheard = liveness.now - view.heard;
  if (unheard < liveness.limit) return std::nullopt;
  return FailureReport{rank, fmt::format("{} has stopped: no sign of life for {}{}", Name(rank),
                                         Seconds(unheard), At("was", view.status))};
}

FailureReport NotEntered(int rank, const RankStatus& status) {
  const std::string last = status.doing[0] ? fmt::format("the last it entered was {}", status.doing)
                                           : "it has entered no operation yet";
  return {rank, fmt::format("{} is running and has not entered it; {}{}", Name(rank), last,
                            At("is", status))};
}

}  // namespace

void RankStatus::Enter(int group, int64_t collectives) {
  for (Entered& slot : entered) {
    if (slot.collectives > 0 && slot.group != group) continue;
    slot = {group, collectives};
    return;
  }
}

int64_t RankStatus::CollectivesOf(int group) const {
  for (const Entered& slot : entered) {
    if (slot.group == group) return slot.collectives;
  }
  return 0;
}

FailureReport ExplainWait(int me, int peer, const RankViews& views, const Liveness& liveness) {
  // A stopped process explains every wait, also where the chain to it is not known yet.
  for (int rank = 0; rank < static_cast<int>(views.size()); ++rank) {
    if (rank == me) continue;
    if (auto lost = IfLost(rank, views, liveness);
        lost && views[rank].status.phase != Phase::kLeft) {
      return *lost;
    }
  }
  std::vector<int> path = {me};
  for (int rank = peer;;) {
    if (auto lost = IfLost(rank, views, liveness)) return *lost;
    const RankStatus& status = views[rank].status;
    if (status.waiting_for < 0) return NotEntered(rank, status);
    path.push_back(rank);
    if (std::find(path.begin(), path.end(), status.waiting_for) != path.end()) {
      return {rank, fmt::format("{} waits for {} in {}: their orders of operations differ",
                                Name(rank), Name(status.waiting_for), status.doing)};
    }
    rank = status.waiting_for;
  }
}

std::string Seconds(std::chrono::steady_clock::duration d) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(d).count());
}

}  // namespace equipoise
