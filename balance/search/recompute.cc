#include "balance/search/recompute.h"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>

#include "configs/base/error.h"

// A multiple-choice knapsack, solved by dynamic programming over Pareto fronts: after each layer
// only combinations are kept that no other dominates in both bytes and seconds. Most layers of a
// rank have equal options, so that many combinations coincide and fronts stay small. O(layers x
// front x options).

namespace equipoise {
namespace {

using Combination = LeastRecomputation::Combination;

bool Precedes(const Combination& a, const Combination& b) {
  return std::tie(a.bytes, a.seconds, a.from, a.option) <
         std::tie(b.bytes, b.seconds, b.from, b.option);
}

// The Pareto front of all combinations of `before` with an option, within the budget: ascending in
// bytes, descending in time. With one option the front keeps its order: the options' are merged.
std::vector<Combination> Extended(const std::vector<Combination>& before,
                                  const std::vector<RecomputeOption>& options,
                                  int64_t budget_bytes) {
  const auto with = [&](size_t from, size_t option) {
    return Combination{before[from].seconds + options[option].seconds,
                       before[from].bytes + options[option].bytes, static_cast<int>(from),
                       static_cast<int>(option)};
  };
  std::vector<Combination> front, next;  // next: by option, the first that is not merged yet
  for (size_t option = 0; option < options.size(); ++option) next.push_back(with(0, option));
  while (!next.empty()) {
    const auto first = std::min_element(next.begin(), next.end(), Precedes);
    if (first->bytes > budget_bytes) break;
    if (front.empty() || first->seconds < front.back().seconds) front.push_back(*first);
    const size_t from = static_cast<size_t>(first->from) + 1;
    if (from < before.size()) {
      *first = with(from, static_cast<size_t>(first->option));
    } else {
      next.erase(first);
    }
  }
  return front;
}

}  // namespace

LeastRecomputation::LeastRecomputation(std::vector<std::vector<RecomputeOption>> layers,
                                       int64_t most_bytes)
    : layers_(std::move(layers)), most_bytes_(most_bytes) {
  fronts_.push_back({{}});
  for (const std::vector<RecomputeOption>& options : layers_) {
    fronts_.push_back(Extended(fronts_.back(), options, most_bytes));
    if (fronts_.back().empty()) return;
  }
}

std::optional<std::vector<Recompute>> LeastRecomputation::Within(int64_t budget_bytes) const {
  EQUIPOISE_CHECK(budget_bytes <= most_bytes_, budget_bytes, " of ", most_bytes_, " bytes");
  if (budget_bytes < 0) return std::nullopt;
  // What is beyond the budget comes last in every front: the rest is the front of this budget. Its
  // last combination is the fastest.
  const std::vector<Combination>& last = fronts_.back();
  const auto beyond = std::partition_point(last.begin(), last.end(), [&](const Combination& each) {
    return each.bytes <= budget_bytes;
  });
  if (beyond == last.begin()) return std::nullopt;
  std::vector<Recompute> kinds(layers_.size());
  auto at = static_cast<size_t>(beyond - last.begin()) - 1;
  for (size_t layer = layers_.size(); layer > 0; --layer) {
    const Combination& taken = fronts_[layer][at];
    kinds[layer - 1] = layers_[layer - 1][static_cast<size_t>(taken.option)].kind;
    at = static_cast<size_t>(taken.from);
  }
  return kinds;
}

std::optional<std::vector<Recompute>> LeastRecompute(
    const std::vector<std::vector<RecomputeOption>>& layers, int64_t budget_bytes) {
  return LeastRecomputation(layers, budget_bytes).Within(budget_bytes);
}

}  // namespace equipoise
