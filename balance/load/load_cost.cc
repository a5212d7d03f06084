#include "balance/load/load_cost.h"

#include "balance/load/partition.h"

namespace equipoise {

LoadCost FlopsOfLoad(const ModelConfig& config, const std::vector<std::string>& frozen) {
  const auto sum = [&](const LayerLoad& load) {
    double flops = 0;
    for (const double layer : LayerCosts(config, frozen, load)) flops += layer;
    return flops;
  };
  LoadCost cost;
  cost.patch = sum({.patches = 1});
  cost.patch_pair = sum({.patch_pairs = 1});
  cost.window_pair = sum({.window_pairs = 1});
  cost.image_token = sum({.image_tokens = 1});
  cost.token = sum({.tokens = 1});
  cost.token_pair = sum({.token_pairs = 1});
  cost.target = sum({.targets = 1});
  return cost;
}

}  // namespace equipoise
