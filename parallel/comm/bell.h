#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace equipoise {

// A thread's sleep that others may end.
class Bell {
 public:
  // Ends the sleep under way, or else the next one. For any thread.
  void Ring() {
    {
      std::lock_guard lock(mutex_);
      rung_ = true;
    }
    bell_.notify_one();
  }
  // Sleeps until it rings, but `limit` at most. For one thread.
  void Sleep(std::chrono::microseconds limit) {
    std::unique_lock lock(mutex_);
    bell_.wait_for(lock, limit, [this] { return rung_; });
    rung_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable bell_;
  bool rung_ = false;
};

}  // namespace equipoise
