#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainer/outputs/metrics.h"

namespace equipoise {

struct ProgressOptions {
  int64_t steps = 0;     // steps of the whole run
  bool live = false;     // for a terminal: one line that is overwritten
  double every_s = 5.0;  // seconds between lines without a terminal
  bool balance = false;  // whether to show the imbalance of data ranks
  // Columns of the terminal, to which the line is cut, as a wrapped line cannot be overwritten.
  std::function<int()> columns;
  // Outputs: `live_out` gets text with control characters, `line_out` whole lines.
  std::function<void(const std::string&)> live_out;
  std::function<void(const std::string&)> line_out;
};

// The progress of a run, shown by rank 0. On a terminal, one line that is overwritten at most ten
// times a second, and by other messages (see LineStart()); else a line for the first and the last
// step and every few seconds. Rates are exponential moving averages over about ten seconds; the
// remaining time is by them and by the pauses between steps so far.
class Progress {
 public:
  explicit Progress(ProgressOptions options) : options_(std::move(options)) {}

  // Reports a step that ended at `now_s` (any monotonic clock, seconds).
  void Report(const StepMetrics& metrics, double now_s);

 private:
  void Smooth(const StepMetrics& metrics);
  std::string Text(const StepMetrics& metrics) const;

  ProgressOptions options_;
  bool first_ = true;
  double shown_s_ = 0;
  // Exponentially decaying sums over steps.
  double seconds_ = 0, steps_ = 0, tokens_ = 0, samples_ = 0, images_ = 0, wait_s_ = 0;
  // Of all steps, as evaluations and checkpoints are rare: seconds between steps without outer
  // steps, which belong to the steps above.
  double paused_s_ = 0, reported_ = 0, last_outer_s_ = 0;
};

// A duration, such as "3h05m", "4m09s", "12s".
std::string DurationText(double seconds);
// A count, such as "950", "12.3k", "4.56M".
std::string CountText(double count);

}  // namespace equipoise
