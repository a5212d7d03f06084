#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainer/outputs/metrics.h"

namespace equipoise {

struct ProgressOptions {
  int64_t steps = 0;     // of the whole run
  bool live = false;     // standard error is a terminal: one line that is written over
  double every_s = 5.0;  // seconds between plain lines
  bool balance = false;  // whether there are data ranks to be even: the unevenness is shown
  // Columns of the terminal, to which the live line is cut: a longer one could not be written over.
  std::function<int()> columns;
  // Where text goes: `live_out` gets raw text with its control characters, `line_out` whole lines.
  std::function<void(const std::string&)> live_out;
  std::function<void(const std::string&)> line_out;
};

// How far a run is, on rank 0. With a terminal, one line that is written over (at most ten times a
// second, and by what else is told: see LineStart()); without, a line at the first and the last
// step and every few seconds between. Rates and the time left are over the steps of about the last
// ten seconds.
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
  // Decayed sums over the last steps.
  double seconds_ = 0, steps_ = 0, tokens_ = 0, samples_ = 0, images_ = 0, wait_s_ = 0;
};

// "3h05m", "4m09s", "12s"
std::string DurationText(double seconds);
// "950", "12.3k", "4.56M"
std::string CountText(double count);

}  // namespace equipoise
