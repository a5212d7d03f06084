#include "balance/search/recompute.h"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>

// A multiple-choice knapsack, solved by dynamic programming over Pareto fronts: after each layer
// only combinations are kept that no other dominates in both bytes and seconds. Most layers of a
// rank have equal options, so that many combinations coincide and fronts stay small. O(layers x
// front x options).

namespace equipoise {
namespace {

// A combination of options for the layers so far.
struct Combination {
  double seconds = 0;
  int64_t bytes = 0;
  int from = 0;    // index of the combination of the layers before
  int option = 0;  // of the last layer
};

bool Precedes(const Combination& a, const Combination& b) {
  return std::tie(a.bytes, a.seconds, a.from, a.option) <
         std::tie(b.bytes, b.seconds, b.from, b.option);
}

// Keeps the Pareto front: removes combinations that another equals or beats in both.
// REQUIRES: ascending order.
void KeepParetoFront(std::vector<Combination>& all) {
  size_t kept = 0;
  for (const Combination& each : all) {
    if (kept > 0 && each.seconds >= all[kept - 1].seconds) continue;
    all[kept++] = each;
  }
  all.resize(kept);
}

}  // namespace

std::optional<std::vector<Recompute>> LeastRecompute(
    const std::vector<std::vector<RecomputeOption>>& layers, int64_t budget_bytes) {
  if (budget_bytes < 0) return std::nullopt;
  std::vector<std::vector<Combination>> by_layer = {{{}}};
  for (const std::vector<RecomputeOption>& options : layers) {
    const std::vector<Combination>& before = by_layer.back();
    std::vector<Combination> all;
    all.reserve(before.size() * options.size());
    // With one option the front keeps its order: the options' are merged.
    for (size_t option = 0; option < options.size(); ++option) {
      const auto begin = static_cast<std::ptrdiff_t>(all.size());
      for (size_t from = 0; from < before.size(); ++from) {
        const int64_t bytes = before[from].bytes + options[option].bytes;
        if (bytes > budget_bytes) break;
        all.push_back({before[from].seconds + options[option].seconds, bytes,
                       static_cast<int>(from), static_cast<int>(option)});
      }
      std::inplace_merge(all.begin(), all.begin() + begin, all.end(), Precedes);
    }
    KeepParetoFront(all);
    if (all.empty()) return std::nullopt;
    by_layer.push_back(std::move(all));
  }
  // Ascending in bytes is descending in time: the last is the fastest.
  std::vector<Recompute> kinds(layers.size());
  size_t at = by_layer.back().size() - 1;
  for (size_t layer = layers.size(); layer > 0; --layer) {
    const Combination& taken = by_layer[layer][at];
    kinds[layer - 1] = layers[layer - 1][static_cast<size_t>(taken.option)].kind;
    at = static_cast<size_t>(taken.from);
  }
  return kinds;
}

}  // namespace equipoise
