#pragma once

#include <vector>

#include "models/layers/micro_batch.h"
#include "models/spec/model_config.h"
#include "tests/parity/cell.h"

namespace equipoise::testing {

// The cell's micro-batches, with pictures as bytes, as loaders give them.
std::vector<MicroBatch> CellBatches(const Cell& cell, const ModelConfig& config);

// The sum of the weights of their targets.
double TotalWeight(const std::vector<MicroBatch>& batches);

}  // namespace equipoise::testing
