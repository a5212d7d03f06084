#include "trainer/outputs/activity.h"

#include <fmt/format.h>

#include <utility>

#include "trainer/outputs/progress.h"

namespace equipoise {

ActivityLog::ActivityLog(Options options)
    : options_(std::move(options)), thread_([this] { Watch(); }) {}

ActivityLog::~ActivityLog() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

ActivityLog::Scope::Scope(ActivityLog& log, std::string what) : log_(log) {
  const std::lock_guard lock(log_.mutex_);
  outer_ = std::exchange(log_.what_, std::move(what));
  outer_began_ = std::exchange(log_.began_, Clock::now());
  log_.due_ = log_.began_ + log_.options_.first;
  log_.changed_.notify_one();
}

ActivityLog::Scope::~Scope() {
  const std::lock_guard lock(log_.mutex_);
  log_.what_ = std::move(outer_);
  log_.began_ = outer_began_;
  log_.due_ = Clock::now() + log_.options_.every;
  log_.changed_.notify_one();
}

void ActivityLog::Watch() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (what_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const Clock::time_point due = due_;
    changed_.wait_until(lock, due);
    if (ends_ || what_.empty() || due_ != due || Clock::now() < due) continue;
    due_ = due + options_.every;
    const std::chrono::duration<double> since = Clock::now() - began_;
    const std::string line = fmt::format("{}: {} so far", what_, DurationText(since.count()));
    lock.unlock();
    options_.out(line);
    lock.lock();
  }
}

}  // namespace equipoise
