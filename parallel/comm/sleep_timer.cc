#include "parallel/comm/sleep_timer.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "configs/error.h"

namespace equipoise {
namespace {

int OpenTimer() {
  const int file = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  if (file < 0) throw RunError(std::string("timerfd_create: ") + std::strerror(errno));
  return file;
}

}  // namespace

SleepTimer::SleepTimer() : file_(OpenTimer()) {}

SleepTimer::~SleepTimer() { close(file_); }

void SleepTimer::Sleep(std::chrono::microseconds limit) {
  {
    std::lock_guard lock(mutex_);
    limit_ = Clock::now() + limit;
    asleep_ = true;
    Arm();
  }
  // Interrupted by a signal: as good as awake.
  uint64_t expired = 0;
  [[maybe_unused]] const ssize_t bytes = read(file_, &expired, sizeof expired);
  std::lock_guard lock(mutex_);
  asleep_ = false;
  wake_at_ = Clock::time_point::max();
}

void SleepTimer::WakeIn(std::chrono::microseconds delay) {
  std::lock_guard lock(mutex_);
  wake_at_ = Clock::now() + delay;
  if (asleep_) Arm();
}

// steady_clock is CLOCK_MONOTONIC: its times are the timer's.
void SleepTimer::Arm() {
  using std::chrono::nanoseconds;
  const auto at = std::min(limit_, wake_at_).time_since_epoch();
  const auto ns = std::max<int64_t>(1, std::chrono::duration_cast<nanoseconds>(at).count());
  itimerspec time{};
  time.it_value.tv_sec = ns / 1'000'000'000;
  time.it_value.tv_nsec = ns % 1'000'000'000;
  timerfd_settime(file_, TFD_TIMER_ABSTIME, &time, nullptr);
}

}  // namespace equipoise
