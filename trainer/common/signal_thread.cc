#include "trainer/common/signal_thread.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "configs/base/error.h"

namespace equipoise {
namespace {

// Those that a thread brings upon itself, and those that stop it.
constexpr std::array<int, 13> kOwn = {SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,  SIGTRAP, SIGSYS, SIGABRT,
                                      SIGPIPE, SIGXFSZ, SIGTSTP, SIGTTIN, SIGTTOU, SIGXCPU};

sigset_t SentSignals() {
  sigset_t sent;
  sigfillset(&sent);
  for (const int own : kOwn) sigdelset(&sent, own);
  return sent;
}

class SignalThread {
 public:
  explicit SignalThread(const sigset_t& held) : held_(held), changed_(eventfd(0, EFD_CLOEXEC)) {
    if (changed_ < 0) throw RunError("eventfd: no file descriptor is left; raise `ulimit -n`");
    std::thread([this] { Run(); }).detach();
  }

  // Returns when the thread no longer waits with what was held back before.
  bool HoldBack(int signal, bool held) {
    std::unique_lock lock(mutex_);
    const bool before = sigismember(&held_, signal) == 1;
    held ? sigaddset(&held_, signal) : sigdelset(&held_, signal);
    const int64_t change = ++changes_;
    constexpr uint64_t kOne = 1;
    [[maybe_unused]] const ssize_t written = write(changed_, &kOne, sizeof(kOne));
    seen_.wait(lock, [&] { return seen_changes_ >= change; });
    return before;
  }

 private:
  // Signals are delivered while it waits, and at no other time: all are blocked in between.
  [[noreturn]] void Run() {
    while (true) {
      sigset_t held;
      {
        const std::lock_guard lock(mutex_);
        held = held_;
        seen_changes_ = changes_;
      }
      seen_.notify_all();
      pollfd change = {changed_, POLLIN, 0};
      if (ppoll(&change, 1, /*timeout=*/nullptr, &held) <= 0) continue;
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t taken = read(changed_, &count, sizeof(count));
    }
  }

  std::mutex mutex_;
  std::condition_variable seen_;
  sigset_t held_;
  int64_t changes_ = 0, seen_changes_ = 0;  // of held_
  const int changed_;                       // wakes the thread
};

SignalThread* started = nullptr;  // never ends

}  // namespace

void TakeSignalsOnOwnThread() {
  EQUIPOISE_CHECK(started == nullptr);
  const sigset_t sent = SentSignals();
  sigset_t held;
  pthread_sigmask(SIG_BLOCK, &sent, &held);
  started = std::make_unique<SignalThread>(held).release();
}

bool HoldBackSignal(int signal, bool held) {
  if (started != nullptr) return started->HoldBack(signal, held);
  sigset_t one, before;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(held ? SIG_BLOCK : SIG_UNBLOCK, &one, &before);
  return sigismember(&before, signal) == 1;
}

}  // namespace equipoise
