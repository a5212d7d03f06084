#include "balance/groups/group_exchange.h"

#include <catch2/catch.hpp>

#include "tests/balance/group_samples.h"

namespace equipoise {
namespace {

std::vector<LayerLoad> LoadsOf(const std::vector<SampleSize>& sizes, const GroupOfSample& groups) {
  std::vector<LayerLoad> loads(static_cast<size_t>(groups.groups));
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (groups.group[i] < 0) continue;
    LayerLoad& load = loads[static_cast<size_t>(groups.group[i])];
    load.patches += sizes[i].patches;
    load.tokens += sizes[i].tokens;
  }
  return loads;
}

TEST_CASE("two groups exchange the samples that make them equal", "[balance][cpu]") {
  const std::vector<SampleSize> sizes = {{1, 90}, {1, 50}, {1, 60}, {1, 20}};
  GroupOfSample groups{2, {0, 0, 1, 1}};
  SplitMix random(1);
  ExchangeSamples(sizes, {{4, 1000}, 3, true}, random, groups);
  const std::vector<LayerLoad> loads = LoadsOf(sizes, groups);
  CHECK(loads[0].tokens == 110);
  CHECK(loads[1].tokens == 110);
  CHECK(loads[0].patches == 2);
}

TEST_CASE("a group hands a sample over where that is better", "[balance][cpu]") {
  const std::vector<SampleSize> sizes = {{1, 40}, {1, 40}, {1, 40}, {1, 40}};
  GroupOfSample groups{2, {0, 0, 0, 1}};
  SplitMix random(1);
  ExchangeSamples(sizes, {{4, 1000}, 3, true}, random, groups);
  CHECK(LoadsOf(sizes, groups)[0].tokens == 80);
}

TEST_CASE("limits are kept, and no group is emptied", "[balance][cpu]") {
  std::vector<SampleSize> sizes = MixedSamples(3000);
  const GroupLimits limits = {9, 4096};
  GroupOfSample groups{0, {}};
  // Next fit.
  LayerLoad open;
  for (const SampleSize& size : sizes) {
    if (groups.groups == 0 || open.patches + size.patches > limits.patches ||
        open.tokens + size.tokens > limits.tokens) {
      ++groups.groups;
      open = {};
    }
    open.patches += size.patches;
    open.tokens += size.tokens;
    groups.group.push_back(static_cast<int32_t>(groups.groups - 1));
  }
  groups.group[5] = -1;  // of no group
  SplitMix random(2);
  ExchangeSamples(sizes, {limits, 12, true}, random, groups);
  CHECK(groups.group[5] == -1);
  for (const LayerLoad& load : LoadsOf(sizes, groups)) {
    CHECK(load.patches <= limits.patches);
    CHECK(load.tokens <= limits.tokens);
    CHECK(load.tokens > 0);
  }
}

TEST_CASE("groups beyond the limits come within them where there is room", "[balance][cpu]") {
  SplitMix random(3);
  std::vector<SampleSize> sizes;
  GroupOfSample groups{100, {}};
  int64_t tokens = 0;
  for (int i = 0; i < 600; ++i) {
    sizes.push_back({1, 50 + static_cast<int32_t>(random.Below(500))});
    groups.group.push_back(static_cast<int32_t>(random.Below(100)));
    tokens += sizes.back().tokens;
  }
  const GroupLimits limits = {20, tokens / 100 * 129 / 128};
  ExchangeSamples(sizes, {limits, 60, false}, random, groups);
  for (const LayerLoad& load : LoadsOf(sizes, groups)) CHECK(load.tokens <= limits.tokens);
}

}  // namespace
}  // namespace equipoise
