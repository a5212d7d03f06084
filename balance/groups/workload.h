#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "balance/load/load_cost.h"
#include "models/spec/layer_spec.h"

namespace equipoise {

// The load of a run, for planning.
struct Workload {
  // The packs of typical optimizer steps, which do not depend on the mesh.
  std::vector<std::vector<LayerLoad>> steps;
  // The cost by which AssignRows() assigns a step's packs to micro-batches and data ranks; absent:
  // they keep their order.
  std::optional<LoadCost> dealt_by;
  LayerLoad worst;  // the micro-batch that needs the most memory of all that may occur

  int64_t global_batch() const { return static_cast<int64_t>(steps.front().size()); }
};

// The packs of a step, as indices, by micro-batch and data rank: micro-batch m of rank r is entry
// m * data + r. REQUIRES: data divides the number of packs.
std::vector<int> DealtPacks(const Workload& workload, size_t step, int data);
// The packs of a data rank, in the order of its micro-batches.
std::vector<int> PacksOfRank(const std::vector<int>& dealt, int data, int rank);

}  // namespace equipoise
