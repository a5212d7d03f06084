#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace equipoise {

// What a rank tells the others about itself, again and again. Sent as bytes: all ranks are the same
// binary.
struct RankStatus {
  enum class Phase : int32_t {
    kRunning,
    kFailed,   // an operation has failed; `faulty_rank` and `verdict` say why
    kLeaving,  // has reported its failure and is about to end with `exit_code`
    kLeft,     // will take part in nothing any more
  };
  Phase phase = Phase::kRunning;
  int32_t waiting_for = -1;  // the rank whose answer its compute thread waits for; -1: computing
  int32_t faulty_rank = -1;  // of a failure; -1: none known
  int32_t exit_code = 0;
  bool for_all = false;     // of kLeaving: what it has told need not be told by the others
  char doing[120] = "";     // the operation its compute thread waits in, or the last one it entered
  char computes[100] = "";  // the op of a schedule that it is at, with its layers
  char verdict[360] = "";
  // How many collectives of a group this rank has handed to its GPU. Unused slots come last.
  struct Entered {
    int32_t group = 0;
    int64_t collectives = 0;
  };
  std::array<Entered, 16> entered = {};
  void Enter(int group, int64_t collectives);
  int64_t CollectivesOf(int group) const;
};

// How a rank ends after a failure.
struct ExitReport {
  int exit_code;
  std::string message;
  bool for_all = false;  // it has been told, and says all that the other ranks could
};

struct RankView {
  RankStatus status;
  std::chrono::steady_clock::time_point heard;  // when the status came in
};
using RankViews = std::vector<RankView>;  // by rank

// Who is to blame, and a text for people.
struct FailureReport {
  int faulty_rank = -1;
  std::string text;
};

// Copies `text`, cut to fit, into a field of RankStatus.
template <size_t kSize>
void SetText(char (&field)[kSize], const std::string& text) {
  field[text.copy(field, kSize - 1)] = '\0';
}

// Explains why rank `me` gets no answer from `peer`: follows who waits for whom to a rank that has
// fallen silent (its process is stopped), has left, or computes and has not entered the operation.
struct Liveness {
  std::chrono::steady_clock::time_point now;
  std::chrono::milliseconds limit;  // a rank unheard for so long is stopped
};
FailureReport ExplainWait(int me, int peer, const RankViews& views, const Liveness& liveness);

// "2.3 s"
std::string Seconds(std::chrono::steady_clock::duration d);

}  // namespace equipoise
