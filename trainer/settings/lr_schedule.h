#pragma once

#include <cstdint>

#include "trainer/settings/run_config.h"

namespace equipoise {

// The number of warm-up steps. A `train.warmup` below 1 is a share of all steps (rounded up), else
// the number of steps.
int64_t WarmupSteps(const TrainSection& train);

// The learning rate of the optimizer step that follows `step` completed steps: linear warm-up from
// 0 to `train.lr`, then constant, or cosine or linear decay to `train.min_lr` x `train.lr` at
// `train.steps`. Equal to Transformers' schedules of these names. wsd (warm-up, stable, decay): it
// is constant but for the last `train.decay` steps, where it falls by 1 - sqrt (Haegele et al.,
// "Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations", 2024, section 3;
// Transformers' warmup_stable_decay with decay_type `1-sqrt`). Pure.
double LearningRate(const TrainSection& train, int64_t step);

}  // namespace equipoise
