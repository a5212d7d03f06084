#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace equipoise {

// The status of a rank, which it sends to all others with every heartbeat. Sent as bytes: all ranks
// run the same binary.
struct RankStatus {
  enum class Phase : int32_t {
    kRunning,
    kFailed,   // an operation has failed; `faulty_rank` and `failure` say why
    kLeaving,  // has reported its failure and is about to exit with `exit_code`
    kLeft,     // takes part in nothing any more
  };
  Phase phase = Phase::kRunning;
  int32_t waiting_for = -1;  // the rank that its compute thread waits for; -1: computing
  int32_t faulty_rank = -1;  // of a failure; -1: none known
  int32_t exit_code = 0;
  bool for_all = false;     // of kLeaving: its report covers all ranks
  char doing[120] = "";     // the operation its compute thread waits in, or the last one it entered
  char computes[100] = "";  // the op of the schedule that it runs, with its layers
  char failure[1000] = "";  // of kFailed: FailureReport::text
  // Number of collectives of a group that this rank has given to its GPU. Unused slots come last.
  struct Entered {
    int32_t group = 0;
    int64_t collectives = 0;
  };
  std::array<Entered, 16> entered = {};
  void Enter(int group, int64_t collectives);
  int64_t CollectivesOf(int group) const;
};

// How a rank exits after a failure.
struct ExitReport {
  int exit_code;
  std::string message;
  bool for_all = false;  // the message has been reported and covers all ranks
};

// The last known status of another rank.
struct RankView {
  RankStatus status;
  std::chrono::steady_clock::time_point heard;  // when the status came in
};
using RankViews = std::vector<RankView>;  // by rank

// The cause of a failure, for messages.
struct FailureReport {
  int faulty_rank = -1;  // -1: none known
  std::string text;
};

// Copies `text`, truncated to fit, into a field of RankStatus.
template <size_t kSize>
void SetText(char (&field)[kSize], const std::string& text) {
  field[text.copy(field, kSize - 1)] = '\0';
}

// The rule by which a rank counts as stopped.
struct Liveness {
  std::chrono::steady_clock::time_point now;
  std::chrono::milliseconds limit;  // without a heartbeat for this long, it is stopped
};
// Explains why rank `me` gets no answer from `peer`: follows the chain of ranks that wait for each
// other to one that has stopped, has left, or computes and has not entered the operation.
FailureReport ExplainWait(int me, int peer, const RankViews& views, const Liveness& liveness);

// A duration as text: "2.3 s".
std::string Seconds(std::chrono::steady_clock::duration d);

}  // namespace equipoise
