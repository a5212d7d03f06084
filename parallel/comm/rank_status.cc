#include "parallel/comm/rank_status.h"

#include <algorithm>
#include <cstdio>
#include <optional>

namespace equipoise {
namespace {

using Phase = RankStatus::Phase;

std::string Name(int rank) { return "rank " + std::to_string(rank); }

// "; it was at 3B5, layers.0 to .3"
std::string At(const char* was, const RankStatus& status) {
  if (!status.computes[0]) return "";
  return std::string("; it ") + was + " at " + status.computes;
}

std::optional<FailureReport> IfLost(int rank, const RankViews& views, const Liveness& liveness) {
  const RankView& view = views[rank];
  if (view.status.phase == Phase::kLeft) return FailureReport{rank, Name(rank) + " has left"};
  if (view.status.phase != Phase::kRunning)
    return FailureReport{view.status.faulty_rank, view.status.verdict};
  const auto unheard = liveness.now - view.heard;
  if (unheard < liveness.limit) return std::nullopt;
  return FailureReport{rank, Name(rank) + " has stopped: no sign of life for " + Seconds(unheard) +
                                 At("was", view.status)};
}

FailureReport NotEntered(int rank, const RankStatus& status) {
  std::string text = Name(rank) + " is running and has not entered it; ";
  text += status.doing[0] ? std::string("the last it entered was ") + status.doing
                          : "it has entered no operation yet";
  text += At("is", status);
  return {rank, text};
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
  // A stopped process explains every wait, also where the way to it is not known yet.
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
      return {rank, Name(rank) + " waits for " + Name(status.waiting_for) + " in " + status.doing +
                        ": their orders of operations differ"};
    }
    rank = status.waiting_for;
  }
}

std::string Seconds(std::chrono::steady_clock::duration d) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(d).count());
  return text;
}

}  // namespace equipoise
