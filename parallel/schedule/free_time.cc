#include "parallel/schedule/free_time.h"

#include <algorithm>
#include <limits>

namespace equipoise {

FreeTime::FreeTime(const std::vector<double>& starts, const std::vector<double>& ends, double lead,
                   bool ends_alone, double shortest_s)
    : shortest_s_(shortest_s) {
  double free_s = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    const double start = starts[i] + lead;
    const Bubble bubble = {free_s, start};
    // The one in front may grow (SetLater()).
    const bool counts = i == 0 ? start > free_s : !ends_alone && IsOfUse(bubble);
    if (counts) bubbles_.push_back(bubble);
    free_s = std::max(free_s, ends[i] + lead);
  }
  bubbles_.push_back({free_s, std::numeric_limits<double>::infinity()});
}

void FreeTime::SetLater(const FreeTime& other, double seconds) {
  shortest_s_ = other.shortest_s_;
  const bool starts_free = other.bubbles_[other.first_].start_s == 0;
  bubbles_.assign(1, {0, seconds});  // of what is inserted in front, where there is time
  bubbles_.insert(bubbles_.end(),
                  other.bubbles_.begin() + static_cast<std::ptrdiff_t>(other.first_),
                  other.bubbles_.end());
  for (size_t i = 1; i < bubbles_.size(); ++i) {
    bubbles_[i].start_s += seconds;
    bubbles_[i].end_s += seconds;
  }
  if (starts_free) bubbles_[1].start_s = 0;
  first_ = starts_free || seconds <= 0 ? 1 : 0;
}

// Most searches are for the time right after what was taken before: a few steps from the front.
size_t FreeTime::FirstAfter(double time) const {
  size_t low = first_, step = 1;  // all before `low` end by `time`
  while (low + step < bubbles_.size() && bubbles_[low + step - 1].end_s <= time) {
    low += step;
    step *= 2;
  }
  const auto begin = bubbles_.begin() + static_cast<std::ptrdiff_t>(low);
  const auto end =
      bubbles_.begin() + static_cast<std::ptrdiff_t>(std::min(low + step, bubbles_.size()));
  const auto after = [](double at, const Bubble& bubble) { return at < bubble.end_s; };
  return static_cast<size_t>(std::upper_bound(begin, end, time, after) - bubbles_.begin());
}

void FreeTime::Insert(size_t at, const Bubble& bubble) {
  const auto begin = bubbles_.begin();
  if (first_ > 0 && at - first_ < bubbles_.size() - at) {
    std::move(begin + first_, begin + at, begin + first_ - 1);
    --first_;
    bubbles_[at - 1] = bubble;
  } else {
    bubbles_.insert(begin + at, bubble);
  }
}

void FreeTime::Erase(size_t at) {
  const auto begin = bubbles_.begin();
  if (at - first_ < bubbles_.size() - at) {
    std::move_backward(begin + first_, begin + at, begin + at + 1);
    ++first_;
  } else {
    bubbles_.erase(begin + at);
  }
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
  Bubble& taken = bubbles_[at];
  const Bubble before = {taken.start_s, start}, behind = {start + seconds, taken.end_s};
  const bool has_before = IsOfUse(before), has_behind = IsOfUse(behind);
  if (has_before && has_behind) {
    taken = behind;
    Insert(at, before);
  } else if (has_before || has_behind) {
    taken = has_before ? before : behind;
  } else {
    Erase(at);
  }
}

}  // namespace equipoise
