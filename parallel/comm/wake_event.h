#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace equipoise {

// A sleep of one thread that other threads may end.
class WakeEvent {
 public:
  // Ends the sleep under way, or else the next one. Any thread.
  void Notify() {
    {
      std::lock_guard lock(mutex_);
      notified_ = true;
    }
    condition_.notify_one();
  }
  // Sleeps until notified, for `limit` at most. One thread.
  void Sleep(std::chrono::microseconds limit) {
    std::unique_lock lock(mutex_);
    condition_.wait_for(lock, limit, [this] { return notified_; });
    notified_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool notified_ = false;
};

}  // namespace equipoise
