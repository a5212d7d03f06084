// Interval arithmetic on one step of AdamW, with g the bound on a gradient element:
//   average' <= beta1 * average + (1 - beta1) * g
//   square'  <= beta2 * square + (1 - beta2) * g^2
//   weight'  <= (weight * |1 - lr * decay| + lr / (1 - beta1^t) * average' / eps) * (1 + rounding)
// The last one takes the smallest denominator, eps, as the second moment may be 0. The bound is
// loose and grows from step to step; ZeroOptimizer measures it again when it is no longer safe.

#include "parallel/zero/step_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace equipoise {
namespace {

// The largest numbers of fp32 and bf16 are above 3.38e38: room for what rounding adds.
constexpr double kSafe = 1e37;
// A denominator below this may become 0 in fp32.
constexpr double kSmallestEps = 1e-30;

}  // namespace

bool StepBound::safe() const { return weight < kSafe && average < kSafe && square < kSafe; }

StepBound StepBound::After(const StepSize& step) const {
  const double most = step.gradient * step.gradient;
  StepBound after;
  after.average = step.beta1 * average + (1 - step.beta1) * step.gradient;
  after.square = step.beta2 * square + (1 - step.beta2) * most;
  const double size = step.lr / (1 - std::pow(step.beta1, static_cast<double>(step.number)));
  const double decayed = std::max(1.0, step.lr * step.weight_decay - 1);
  // The other term of the denominator, the root of the second moment, may be 0.
  after.weight = (weight * decayed + size * after.average / step.eps) * (1 + step.rounding);
  const double on_the_way = std::max({most, average + step.gradient, size * after.average});
  if (!(on_the_way < kSafe) || !(step.eps >= kSmallestEps)) {
    after.weight = std::numeric_limits<double>::infinity();
  }
  return after;
}

}  // namespace equipoise
