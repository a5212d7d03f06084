#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "balance/costs/profile.h"
#include "models/layers/micro_batch.h"
#include "models/spec/image_spec.h"
#include "models/spec/model_config.h"
#include "models/spec/tensor_parallel.h"

namespace equipoise {

// A micro-batch that a layer is measured on: tiles, and a row of tokens packed from segments.
struct MeasuredRow {
  int64_t tiles = 0;
  std::vector<int64_t> segments;  // tokens of each
  int64_t masked = 0;             // tokens at the row's beginning that have no target
  LayerLoad load(const ImageSpec& images) const;
};

// A micro-batch of that size on the CPU, with random tokens, targets and pixels.
MicroBatch RandomMicroBatch(const ModelConfig& config, const MeasuredRow& row);

// A layer of a model, or a tensor-parallel rank's part of it, run with random weights and inputs:
// as one of a few of its kind, where the model has them, each on the output of the one before.
// Memory is taken for these alone. Not thread-safe.
class LayerMeter {
 public:
  // `layer` is counted as in LayerSpecs(); `dtype` is the computation's. All `tensor` ranks measure
  // the same rows in the same order.
  LayerMeter(const ModelConfig& config, int layer, at::ScalarType dtype,
             const TensorParallel& tensor = {}, at::Device device = at::kCPU);
  ~LayerMeter();

  // A warm forward and backward pass: times, and with `memory` what is kept between them for each
  // Recompute and the largest temporary memory. A layer without a gradient of its input (patch
  // embedding) has no input_gradient_s; the head makes its gradients in forward. On a CPU bytes are
  // zero without CountCpuMemory(). REQUIRES: a row that gives the layer something to do.
  LayerMeasurement Measure(const MeasuredRow& row, bool memory = true);
  // Seconds of an AdamW update of the layer's parameters, for each of them.
  double OptimizerSecondsPerParameter();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace equipoise
