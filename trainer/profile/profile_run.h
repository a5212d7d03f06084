#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include "balance/costs/profile.h"
#include "models/spec/model_config.h"
#include "parallel/comm/communicator.h"
#include "trainer/profile/measure_layer.h"
#include "trainer/settings/precision.h"

namespace equipoise {

// Identifies the device of a profile made by this process, or usable by it: processor or GPU,
// LibTorch, precision, compute threads.
ProfileUse ThisDevice(Precision precision, at::Device device = at::kCPU);

// Largest sizes that are measured.
struct ProfileGrid {
  int64_t max_tokens = 4096;  // tokens of a row
  int64_t max_tiles = 12;
};

// The rows for the measurements of a layer kind: the largest number of tiles or tokens, its half, a
// quarter, and so on; rows of tokens as one segment, and for decoder blocks also as four; for the
// head with targets at all tokens and at a quarter. Empty when the grid has no load for the kind.
std::vector<MeasuredRow> RowsFor(const LayerSpec& spec, const ModelConfig& config,
                                 const ProfileGrid& grid);

// The degrees of tensor parallelism that are measured on `ranks` ranks: their divisors, up to the
// attention heads of the image encoder and the language model.
std::vector<int> TensorDegrees(const ModelConfig& config, int ranks);

struct MeasureOptions {
  ProfileUse here;                         // ThisDevice()
  Precision precision = Precision::kFp32;  // precision of the computation
  int sweeps = 5;                          // sweeps over all rows; a time is the mean over these
  at::Device device = at::kCPU;            // device of this rank
};

// Measures the layer kinds of the model, whole and for each degree of tensor parallelism (with the
// all-reduces, and the waiting for the slowest rank), the optimizer, the link between ranks 0 and
// 1, and those of GPUs to host memory. As a machine's speed varies over time, every row is measured
// once per sweep; the mean is taken, and not the minimum or median, because the time of a step is
// the sum of its passes. Collective: all ranks compute at the same time, as in a run, and return
// the same profile, the mean over ranks; memory is that of rank 0. `progress` is called before each
// sweep; may be empty.
Profile MeasureProfile(const ModelConfig& config, const ProfileGrid& grid,
                       const MeasureOptions& options, Communicator& world,
                       const std::function<void(int sweep)>& progress = {});

}  // namespace equipoise
