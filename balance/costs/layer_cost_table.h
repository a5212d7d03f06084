#pragma once

#include <array>
#include <vector>

#include "balance/costs/cost_model.h"

namespace equipoise {

// Costs of each layer for each of a list of micro-batches, computed once for many plans. Equal
// layers share their costs, so a model of a hundred layers has some six rows.
class LayerCostTable {
 public:
  struct Costs : LayerSeconds {
    std::array<double, kRecomputeKinds> kept_bytes = {};  // by Recompute
  };
  // `costs` must outlive the table.
  LayerCostTable(const CostModel& costs, const std::vector<LayerLoad>& loads);

  const CostModel& model() const { return costs_; }
  int num_loads() const { return static_cast<int>(loads_.size()); }
  const LayerLoad& load(int load) const { return loads_[static_cast<size_t>(load)]; }
  const Costs& At(int layer, int load) const {
    return rows_[static_cast<size_t>(costs_.GroupOf(layer))][static_cast<size_t>(load)];
  }

 private:
  const CostModel& costs_;
  std::vector<LayerLoad> loads_;
  std::vector<std::vector<Costs>> rows_;  // [group][load]
};

}  // namespace equipoise
