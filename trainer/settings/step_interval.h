#pragma once

#include <cmath>
#include <cstdint>

namespace equipoise {

// How often something is done in a run: every so many steps, or passes over the data, which are
// no whole number of steps.
class StepInterval {
 public:
  explicit StepInterval(double steps) : steps_(steps) {}  // 0: never
  // `epochs` passes of `epoch_steps` each; where there are none, `every` steps.
  StepInterval(int64_t every, double epochs, double epoch_steps)
      : steps_(epochs > 0 ? epochs * epoch_steps : static_cast<double>(every)) {}

  bool on() const { return steps_ > 0; }
  // Whether an interval ends with `step`, from 1 on, or within it.
  bool IsDue(int64_t step) const { return on() && Ended(step) > Ended(step - 1); }

 private:
  // Intervals that `steps` steps complete; 10 of 0.1 x 3 steps complete 3, whatever the rounding.
  double Ended(int64_t steps) const {
    return std::floor(static_cast<double>(steps) / steps_ * (1 + 1e-12));
  }

  double steps_;
};

}  // namespace equipoise
