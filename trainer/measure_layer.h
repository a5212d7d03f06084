#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "balance/profile.h"
#include "models/model_config.h"

namespace equipoise {

// What a layer is measured on: tiles, and a row of tokens packed from segments.
struct MeasuredRow {
  int64_t tiles = 0;
  std::vector<int64_t> segments;  // tokens of each
  LayerLoad load() const;
};

struct MeasureOptions {
  at::ScalarType dtype = at::kFloat;  // of the computation
  int repetitions = 5;                // of each time; the median counts
};

// Runs layer `layer` of the model (counted as in LayerSpecs()) by itself, with random weights and
// inputs, and measures a warm forward and backward pass: times, what is kept between them for each
// Recompute, and the largest temporary memory. Every token of a row has a target. A layer without a
// gradient of its input (patch embedding) has no input_gradient_s; the head makes its gradients in
// forward. Bytes are zero without CountCpuMemory().
// REQUIRES: a row that gives the layer something to do.
LayerMeasurement MeasureLayer(const ModelConfig& config, int layer, const MeasuredRow& row,
                              const MeasureOptions& options);

// Seconds of an AdamW update per parameter, on those of layer `layer`.
double MeasureOptimizer(const ModelConfig& config, int layer, const MeasureOptions& options);

}  // namespace equipoise
