#include "balance/load/load_cost.h"

#include "balance/load/partition.h"

namespace equipoise {

LoadCost FlopsOfLoad(const ModelConfig& config, const std::vector<std::string>& frozen) {
  const auto sum = [&](const LayerLoad& load) {
    double flops = 0;
    for (const double layer : LayerCosts(config, frozen, load)) flops += layer;
    return flops;
  };
  return {sum({1, 0, 0, 0}), sum({0, 1, 0, 0}), sum({0, 0, 1, 0}), sum({0, 0, 0, 1})};
}

}  // namespace equipoise
