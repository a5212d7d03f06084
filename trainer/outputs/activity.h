#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace equipoise {

// Lines about work that takes long, so that nothing of minutes is silent: "WHAT: 1m00s so far",
// ten seconds after its begin and then once a minute.
class ActivityLog {
 public:
  struct Options {
    std::chrono::milliseconds first{10'000}, every{60'000};
    std::function<void(const std::string& line)> out;  // called by another thread
  };
  explicit ActivityLog(Options options);
  ~ActivityLog();
  ActivityLog(const ActivityLog&) = delete;
  ActivityLog& operator=(const ActivityLog&) = delete;

  // The time from its making to its end is spent on one thing. A scope inside another takes its
  // place until it ends. Ends before the log does, on the thread that made it.
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
  std::string what_;  // empty: nothing that could take long
  Clock::time_point began_, due_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace equipoise
