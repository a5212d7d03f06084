#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "balance/costs/memory_model.h"
#include "models/spec/layer_load.h"
#include "models/spec/model_config.h"
#include "tests/bench/device_work.h"
#include "trainer/profile/measure_layer.h"

namespace equipoise::testing {

// What is counted: one micro-batch of a model in bf16.
struct GpuCountSettings {
  ModelConfig model;
  MeasuredRow row;
  int micro_batches = 1;  // of a step
  int pipeline = 1, tensor = 1, data = 1;
  int rank = 0;  // of the mesh: the one that is counted
  std::string schedule = "1f1b";
  bool bf16_moments = false;  // AdamW's
  bool recompute = false;     // every layer
  bool own_kernels = true;    // train.kernels: auto
};

// The work of one layer in a warm forward and backward pass.
struct LayerWork {
  std::string kind;
  DeviceWork forward, backward;
  std::map<std::string, DeviceWork> forward_operations, backward_operations;
};

// One layer of each kind. REQUIRES: the recording CUDA.
std::vector<LayerWork> CountLayers(const GpuCountSettings& settings);

// The second step of a training run on one rank of a mesh: passes, gradient norm, AdamW.
struct StepWork {
  DeviceWork passes, norm, update;
  std::map<std::string, DeviceWork> norm_operations, update_operations;
  int64_t allocated_bytes = 0, reserved_bytes = 0;  // peaks of the caching allocator
  MemoryForecast forecast;                          // its reserve left out
};
StepWork CountStep(const GpuCountSettings& settings);

}  // namespace equipoise::testing
