#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace equipoise {

// Writes a line about an activity that takes long, so that the program is never silent for minutes:
// "WHAT: 1m00s so far", first after ten seconds and then once a minute.
class ActivityLog {
 public:
  struct Options {
    std::chrono::milliseconds first{10'000}, every{60'000};
    std::function<void(const std::string& line)> out;  // called on another thread
  };
  explicit ActivityLog(Options options);
  ~ActivityLog();
  ActivityLog(const ActivityLog&) = delete;
  ActivityLog& operator=(const ActivityLog&) = delete;

  // An activity from construction to destruction, both on one thread and within the log's lifetime.
  // While a nested scope exists, its activity is logged instead.
  class [[nodiscard]] Scope {
   public:
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class ActivityLog;
    Scope(ActivityLog& log, std::string what);
    ActivityLog& log_;
    std::string outer_;
    std::chrono::steady_clock::time_point outer_began_;
  };
  Scope During(std::string what) { return Scope(*this, std::move(what)); }

 private:
  using Clock = std::chrono::steady_clock;
  void Watch();

  Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;  // the current activity; empty: none
  Clock::time_point began_, due_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace equipoise
