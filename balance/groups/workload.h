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
  // The packs of typical optimizer steps. The mesh does not change a step's packs.
  std::vector<std::vector<LayerLoad>> steps;
  // How a step's packs are dealt to micro-batches and data ranks: by AssignRows() with these
  // weights; absent: in turn.
  std::optional<LoadCost> dealt_by;
  LayerLoad worst;  // the micro-batch that needs the most memory of all that can come

  int64_t global_batch() const { return static_cast<int64_t>(steps.front().size()); }
};

// A step's packs by number, as they are dealt: micro-batch m of data rank r is entry m * data + r.
// REQUIRES: data divides the packs' number.
std::vector<int> DealtPacks(const Workload& workload, size_t step, int data);
// The micro-batches of a data rank.
std::vector<int> PacksOfRank(const std::vector<int>& dealt, int data, int rank);

}  // namespace equipoise
