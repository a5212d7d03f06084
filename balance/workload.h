#pragma once

#include <cstdint>
#include <vector>

#include "models/layer_spec.h"

namespace equipoise {

// What a run computes, for planning.
struct Workload {
  // The packs of typical optimizer steps, step after step: micro-batch m of data rank r is pack
  // m * data + r of its step.
  std::vector<std::vector<LayerLoad>> steps;
  LayerLoad worst;  // the micro-batch that needs the most memory of all that can come

  int64_t global_batch() const { return static_cast<int64_t>(steps.front().size()); }
};

// The micro-batches of a data rank, as their packs' numbers. REQUIRES: data divides `packs`.
std::vector<int> PacksOfRank(int packs, int data, int rank);

}  // namespace equipoise
