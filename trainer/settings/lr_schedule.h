#pragma once

#include <cstdint>

#include "trainer/settings/run_config.h"

namespace equipoise {

// Steps of linear warm-up: `train.warmup` is a share of all steps below 1 (rounded up), else a
// number.
int64_t WarmupSteps(const TrainSection& train);

// The learning rate of the optimizer step after `step` steps are done: 0 at step 0 of a warm-up,
// `train.lr` at its end, then cosine or linear down to `train.min_lr` times that at `train.steps`,
// or constant. Equal to Transformers' schedules of these names. Pure.
double LearningRate(const TrainSection& train, int64_t step);

}  // namespace equipoise
