#pragma once

#include <functional>
#include <string>
#include <vector>

#include "balance/profile.h"
#include "models/model_config.h"
#include "parallel/comm/communicator.h"
#include "trainer/measure_layer.h"

namespace equipoise {

// What a profile must have been made on to be used by this process, and what one made here says of
// itself: processor, LibTorch, precision, compute threads.
ProfileUse ThisDevice(at::ScalarType dtype);

struct ProfileGrid {
  int64_t max_tokens = 4096;  // of a row
  int64_t max_tiles = 12;
};

// The rows that a layer kind is measured on: powers of two of tiles or tokens up to the largest, a
// row of tokens as one segment and as several. Empty where the grid gives the kind nothing to do.
std::vector<MeasuredRow> RowsFor(LayerKind kind, const ModelConfig& config,
                                 const ProfileGrid& grid);

// Measures one layer of each kind of the model, the optimizer, and the links between ranks 0 and 1.
// Collective: all ranks compute at once, as they do in a run; the figures are rank 0's. `progress`
// is called with each measurement; may be empty.
Profile MeasureProfile(const ModelConfig& config, const ProfileGrid& grid,
                       const MeasureOptions& options, Communicator& world,
                       const std::function<void(const LayerMeasurement&)>& progress = {});

}  // namespace equipoise
