#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
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

// One layer of a model, run by itself with random weights and inputs. Memory for this layer alone
// is taken. Not thread-safe.
class LayerMeter {
 public:
  // `layer` is counted as in LayerSpecs().
  LayerMeter(const ModelConfig& config, int layer, const MeasureOptions& options);
  ~LayerMeter();

  // A warm forward and backward pass: times, what is kept between them for each Recompute, and the
  // largest temporary memory. Every token of a row has a target. A layer without a gradient of its
  // input (patch embedding) has no input_gradient_s; the head makes its gradients in forward. Bytes
  // are zero without CountCpuMemory(). REQUIRES: a row that gives the layer something to do.
  LayerMeasurement Measure(const MeasuredRow& row);
  // Seconds of an AdamW update of the layer's parameters, for each of them.
  double OptimizerSecondsPerParameter();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace equipoise
