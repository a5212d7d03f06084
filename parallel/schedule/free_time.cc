#include "parallel/schedule/free_time.h"

#include <algorithm>
#include <limits>

namespace equipoise {

FreeTime::FreeTime(const std::vector<double>& starts, const std::vector<double>& ends, double lead,
                   bool ends_alone) {
  double free_s = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    const double start = starts[i] + lead;
    if (start > free_s && (i == 0 || !ends_alone)) bubbles_.push_back({free_s, start});
    free_s = std::max(free_s, ends[i] + lead);
  }
  bubbles_.push_back({free_s, std::numeric_limits<double>::infinity()});
}

FreeTime FreeTime::Later(double seconds) const {
  FreeTime later = *this;
  for (Bubble& bubble : later.bubbles_) {
    bubble.start_s += seconds;
    bubble.end_s += seconds;
  }
  if (bubbles_.front().start_s == 0) {
    later.bubbles_.front().start_s = 0;
  } else if (seconds > 0) {
    later.bubbles_.insert(later.bubbles_.begin(), {0, seconds});
  }
  return later;
}

size_t FreeTime::FirstAfter(double time) const {
  const auto after = [](double at, const Bubble& bubble) { return at < bubble.end_s; };
  return std::upper_bound(bubbles_.begin(), bubbles_.end(), time, after) - bubbles_.begin();
}

double FreeTime::Find(double earliest, double seconds, double slack_s) const {
  const double slack = std::min(slack_s, seconds / 2);
  for (size_t i = FirstAfter(earliest);; ++i) {
    const double start = std::max(bubbles_[i].start_s, earliest);
    if (start + seconds <= bubbles_[i].end_s + slack) return start;
  }
}

void FreeTime::Take(double start, double seconds) {
  const size_t at = FirstAfter(start);
  const double end = bubbles_[at].end_s;
  bubbles_[at].end_s = start;
  if (start + seconds < end) bubbles_.insert(bubbles_.begin() + at + 1, {start + seconds, end});
  if (bubbles_[at].end_s <= bubbles_[at].start_s) bubbles_.erase(bubbles_.begin() + at);
}

}  // namespace equipoise
