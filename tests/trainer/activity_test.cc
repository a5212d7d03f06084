#include "trainer/outputs/activity.h"

#include <catch2/catch.hpp>
#include <vector>

namespace equipoise {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

// Lines as they come, from another thread.
class Lines {
 public:
  void Add(const std::string& line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(line);
    came_.notify_one();
  }
  std::string Next() {
    std::unique_lock lock(mutex_);
    came_.wait(lock, [&] { return next_ < lines_.size(); });
    return lines_[next_++];
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return lines_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::string> lines_;
  size_t next_ = 0;
};

ActivityLog::Options To(Lines& lines, milliseconds first, milliseconds every) {
  return {first, every, [&lines](const std::string& line) { lines.Add(line); }};
}

TEST_CASE("work that takes long is told again and again", "[activity][cpu]") {
  Lines lines;
  ActivityLog log(To(lines, milliseconds(1), milliseconds(1)));
  const auto loading = log.During("loading");
  for (int i = 0; i < 3; ++i) CHECK_THAT(lines.Next(), Catch::Matchers::StartsWith("loading: "));
  {
    const auto inner = log.During("reading");
    std::string line = lines.Next();
    while (line.starts_with("loading: ")) line = lines.Next();  // told before
    CHECK_THAT(line, Catch::Matchers::StartsWith("reading: "));
    CHECK_THAT(line, Catch::Matchers::EndsWith("s so far"));
  }
  std::string line = lines.Next();
  while (line.starts_with("reading: ")) line = lines.Next();
  CHECK_THAT(line, Catch::Matchers::StartsWith("loading: "));
}

TEST_CASE("work that ends soon is not told", "[activity][cpu]") {
  Lines lines;
  {
    ActivityLog log(To(lines, hours(1), hours(1)));
    for (int i = 0; i < 100; ++i) const auto step = log.During("step");
  }
  CHECK(lines.count() == 0);
}

}  // namespace
}  // namespace equipoise
