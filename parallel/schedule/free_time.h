#pragma once

#include <cstddef>
#include <vector>

namespace equipoise {

// What a rank has left of its time beside the ops of a timetable: bubbles, in order. The last one,
// after all ops, has no end.
class FreeTime {
 public:
  // Busy from starts[i] + lead to ends[i] + lead, ascending; free before and after. With
  // `ends_alone` only the time before the first op and after the last counts. Bubbles shorter than
  // `shortest_s` are forgotten: nothing that takes less is asked for.
  FreeTime(const std::vector<double>& starts, const std::vector<double>& ends, double lead,
           bool ends_alone, double shortest_s = 0);

  bool operator==(const FreeTime&) const = default;

  // Becomes `other` with all that is busy later by so much.
  void SetLater(const FreeTime& other, double seconds);

  // The first time from `earliest` at which `seconds` fit without a break. `slack_s` is rounding:
  // an op may overlap the next by so much, and by half its length at most.
  double Find(double earliest, double seconds, double slack_s) const;
  // Takes `seconds` from `start`, which Find() has returned.
  void Take(double start, double seconds);

 private:
  struct Bubble {
    double start_s = 0, end_s = 0;
    bool operator==(const Bubble&) const = default;
  };
  bool IsOfUse(const Bubble& bubble) const {
    return bubble.end_s > bubble.start_s && bubble.end_s - bubble.start_s >= shortest_s_;
  }
  // The index of the first bubble that ends after `time`.
  size_t FirstAfter(double time) const;
  void Insert(size_t at, const Bubble& bubble);
  void Erase(size_t at);

  std::vector<Bubble> bubbles_;  // from first_ on
  // Passes take time from the front: there bubbles are inserted and erased in a few moves.
  size_t first_ = 0;
  double shortest_s_ = 0;
};

}  // namespace equipoise
