#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "models/layer_spec.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {

// One layer at one load, run for itself on a device.
struct LayerMeasurement {
  std::string layer_kind;  // LayerKindName()
  std::string shape;       // LayerShape(): layers of equal kind and shape cost the same
  LayerLoad load;
  double forward_s = 0, backward_s = 0;                // medians; backward is both gradients
  double input_gradient_s = 0, weight_gradient_s = 0;  // with weights frozen; the rest of backward
  std::array<int64_t, 4> kept_bytes = {};              // from forward to backward, by Recompute
  int64_t work_bytes = 0;  // peak of both passes beyond what was there before
};

// What `equipoise profile` has measured on one device.
struct Profile {
  std::string device;     // "NVIDIA A100-SXM4-80GB", or the processor's name
  std::string versions;   // of this program and LibTorch
  std::string precision;  // fp32 | bf16
  int threads = 0;        // of the computation
  std::vector<LayerMeasurement> layers;
  double optimizer_s_per_parameter = 0;
  LinkModel point_to_point, all_reduce;  // between two ranks
};

}  // namespace equipoise
