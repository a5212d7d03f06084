#pragma once

#include <chrono>
#include <mutex>

namespace equipoise {

// A thread's sleep whose end other threads set, sooner or later than it was, without waking it: an
// event that is dealt with elsewhere in the meantime costs no change of threads.
class SleepTimer {
 public:
  // Throws RunError where the system has no timer left.
  SleepTimer();
  ~SleepTimer();
  SleepTimer(const SleepTimer&) = delete;
  SleepTimer& operator=(const SleepTimer&) = delete;

  // Sleeps until the time that WakeIn() has set, but `limit` at most. For one thread.
  void Sleep(std::chrono::microseconds limit);
  // The sleep under way, or the next one, ends after `delay`; the last call holds. For any thread.
  void WakeIn(std::chrono::microseconds delay);

 private:
  using Clock = std::chrono::steady_clock;

  void Arm();

  const int file_;
  std::mutex mutex_;
  bool asleep_ = false;
  Clock::time_point limit_ = Clock::time_point::max();    // of the sleep under way
  Clock::time_point wake_at_ = Clock::time_point::max();  // max: no WakeIn() since the last sleep
};

}  // namespace equipoise
