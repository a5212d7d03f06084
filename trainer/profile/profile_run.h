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

// The device that a profile must have been made on to be used by this process, and by which one
// made here is known: processor or GPU, LibTorch, precision, compute threads.
ProfileUse ThisDevice(Precision precision, at::Device device = at::kCPU);

struct ProfileGrid {
  int64_t max_tokens = 4096;  // of a row
  int64_t max_tiles = 12;
};

// The rows that a layer kind is measured on: powers of two of tiles or tokens up to the largest, a
// row of tokens as one segment and as several, for the head with targets on all tokens and on a
// quarter. Empty where the grid gives the kind nothing to do.
std::vector<MeasuredRow> RowsFor(const LayerSpec& spec, const ModelConfig& config,
                                 const ProfileGrid& grid);

// The numbers of tensor ranks that a profile made on `ranks` ranks tells about: their divisors, up
// to the attention heads of either half of the model.
std::vector<int> TensorDegrees(const ModelConfig& config, int ranks);

struct MeasureOptions {
  ProfileUse here;                         // ThisDevice()
  Precision precision = Precision::kFp32;  // of the computation
  int sweeps = 5;                          // over all rows; a time is their mean
  at::Device device = at::kCPU;            // of this rank
};

// Measures the layer kinds of the model, whole and as tensor ranks share them (with their sums, and
// the waiting for the slowest), the optimizer, and the links between ranks 0 and 1. A
// machine's speed changes while it is measured; so every row is measured once a sweep, far apart,
// and means count, because a step's time is the sum of its passes'. Collective: all ranks compute
// at once, as they do in a run, and have the same result, the mean of their times; memory is that
// of rank 0. `progress` is called before each sweep; may be empty.
Profile MeasureProfile(const ModelConfig& config, const ProfileGrid& grid,
                       const MeasureOptions& options, Communicator& world,
                       const std::function<void(int sweep)>& progress = {});

}  // namespace equipoise
