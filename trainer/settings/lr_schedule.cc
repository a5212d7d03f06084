#include "trainer/settings/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace equipoise {

int64_t WarmupSteps(const TrainSection& train) {
  const double steps = train.warmup < 1 ? std::ceil(static_cast<double>(train.steps) * train.warmup)
                                        : std::floor(train.warmup);
  return static_cast<int64_t>(steps);
}

namespace {

// 1 but for the last `train.decay` steps (of all, where below 1), in which it falls to 0 by 1 -
// sqrt of the part of them that is done.
double StableThenDecay(const TrainSection& train, int64_t step) {
  const auto all = static_cast<double>(train.steps);
  const double asked = train.decay < 1 ? std::ceil(all * train.decay) : std::floor(train.decay);
  const double length = std::min(asked, all - static_cast<double>(WarmupSteps(train)));
  const double done = static_cast<double>(step) - (all - length);
  return done <= 0 ? 1.0 : 1.0 - std::sqrt(std::min(1.0, done / length));
}

}  // namespace

double LearningRate(const TrainSection& train, int64_t step) {
  const int64_t warmup = WarmupSteps(train);
  if (step < warmup) return train.lr * static_cast<double>(step) / static_cast<double>(warmup);
  const double length = static_cast<double>(std::max<int64_t>(1, train.steps - warmup));
  const double done = std::min(1.0, static_cast<double>(step - warmup) / length);
  double decay = 1.0;
  if (train.schedule == "cosine") decay = 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  if (train.schedule == "linear") decay = 1.0 - done;
  if (train.schedule == "wsd") decay = StableThenDecay(train, step);
  return train.lr * (decay * (1.0 - train.min_lr) + train.min_lr);
}

}  // namespace equipoise
