#include "trainer/common/stop_request.h"

#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "parallel/comm/already_reported_error.h"
#include "parallel/comm/mpi_environment.h"
#include "parallel/comm/values.h"
#include "trainer/common/signal_thread.h"

namespace equipoise {
namespace {

constexpr int64_t kEndingWindowMs = 1000;  // most time between SIGCONT and SIGTERM from mpirun
constexpr std::array<int, 4> kSignals = {SIGUSR1, SIGTERM, SIGINT, SIGCONT};

// Global, as a signal handler has no other access to state.
struct SignalState {
  std::atomic<bool> requested{false};
  std::atomic<bool> ending{false};
  std::atomic<bool> under_mpirun{false};
  std::atomic<int64_t> continued_ms{-kEndingWindowMs};
  std::array<struct sigaction, kSignals.size()> before{};
};
static_assert(std::atomic<int64_t>::is_always_lock_free);
SignalState state;

int64_t NowMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

extern "C" void OnSignal(int signal) {
  if (signal == SIGCONT) {
    state.continued_ms = NowMs();
  } else if (signal == SIGTERM && state.under_mpirun &&
             NowMs() - state.continued_ms < kEndingWindowMs) {
    state.ending = true;
  } else {
    state.requested = true;
  }
}

// Whether a directory entry exists, including a dangling link.
bool Exists(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0;
}

}  // namespace

void StopRequest::BlockSignals() { HoldBackSignal(SIGUSR1, true); }

StopRequest::StopRequest() {
  state.requested = false;
  state.ending = false;
  state.under_mpirun = MpiEnvironment::StartedByMpirun();
  state.continued_ms = NowMs() - kEndingWindowMs;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = OnSignal;
    // SA_RESTART: interrupted reads and writes continue. A second Ctrl-C ends the process.
    action.sa_flags = SA_RESTART | (kSignals[i] == SIGINT ? SA_RESETHAND : 0);
    sigemptyset(&action.sa_mask);
    sigaction(kSignals[i], &action, &state.before[i]);
  }
  was_blocked_ = HoldBackSignal(SIGUSR1, false);
}

StopRequest::~StopRequest() {
  if (was_blocked_) HoldBackSignal(SIGUSR1, true);
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &state.before[i], nullptr);
}

void StopRequest::WatchFile(const std::string& run_dir) {
  file_ = run_dir + "/stop";
  RemoveFile();
}

bool StopRequest::Requested() const { return state.requested || (!file_.empty() && Exists(file_)); }

bool StopRequest::Ending() const { return state.ending; }

bool StopRequest::AgreeToStop(Communicator& world) const {
  if (Ending())
    throw AlreadyReportedError("mpirun is ending the job; see the first rank that failed");
  return AnyRank(world, Requested());
}

void StopRequest::RemoveFile() const {
  if (!file_.empty()) std::remove(file_.c_str());  // also removes an empty folder
}

}  // namespace equipoise
