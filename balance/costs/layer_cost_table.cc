#include "balance/costs/layer_cost_table.h"

namespace equipoise {

LayerCostTable::LayerCostTable(const CostModel& costs, const std::vector<LayerLoad>& loads)
    : costs_(costs), loads_(loads), rows_(static_cast<size_t>(costs.num_groups())) {
  for (int layer = 0; layer < costs.num_layers(); ++layer) {
    std::vector<Costs>& row = rows_[static_cast<size_t>(costs.GroupOf(layer))];
    if (!row.empty()) continue;
    for (const LayerLoad& load : loads) {
      Costs& cost = row.emplace_back(Costs{costs.Seconds(layer, load), {}});
      for (size_t kind = 0; kind < cost.kept_bytes.size(); ++kind) {
        const auto recompute = static_cast<Recompute>(kind);
        cost.kept_bytes[kind] = static_cast<double>(costs.KeptBytes(layer, load, recompute));
      }
    }
  }
}

}  // namespace equipoise
