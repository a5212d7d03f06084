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
#include "parallel/recompute.h"

namespace equipoise {

// A micro-batch for measurements: tiles, and a row of tokens packed from segments.
struct MeasuredRow {
  int64_t tiles = 0;
  std::vector<int64_t> segments;  // tokens of each segment
  int64_t masked = 0;             // tokens at the row's beginning that have no target
  LayerLoad load(const ImageSpec& images) const;
};

// A micro-batch of that size on the CPU, with random tokens, targets and pixels.
MicroBatch RandomMicroBatch(const ModelConfig& config, const MeasuredRow& row);

// Measures time and memory of a layer of a model, or of a tensor-parallel rank's slice of it, with
// random weights and inputs. The layer is run as one of a chain of a few successive layers of its
// kind, if the model has them; only these are allocated. Not thread-safe.
class LayerMeter {
 public:
  // `layer` is an index of LayerSpecs(); `dtype` is that of the computation. All `tensor` ranks
  // must measure the same rows in the same order.
  LayerMeter(const ModelConfig& config, int layer, at::ScalarType dtype,
             const TensorParallel& tensor = {}, at::Device device = at::kCPU);
  ~LayerMeter();

  // Times a forward and a backward pass after a warm-up, and with `memory` measures the bytes saved
  // for backward, for each Recompute, and the peak of temporary memory. A layer without an input
  // gradient (patch embedding) has no input_gradient_s; the head computes its gradients in forward.
  // On a CPU bytes are zero without CountCpuMemory(). REQUIRES: the row is not empty for the layer.
  LayerMeasurement Measure(const MeasuredRow& row, bool memory = true);
  // Bytes saved for backward under a Recompute, as Measure() has those of the first four.
  int64_t KeptBytes(const MeasuredRow& row, Recompute recompute);
  // Seconds of an AdamW update per parameter, measured on the layer's parameters.
  double OptimizerSecondsPerParameter();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace equipoise
