#include "balance/groups/balanced_groups.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "balance/groups/isf.h"
#include "tests/balance/group_samples.h"

namespace equipoise {
namespace {

std::set<std::set<int64_t>> AsSets(const SampleGroups& groups) {
  std::set<std::set<int64_t>> sets;
  for (int64_t i = 0; i < groups.size(); ++i) sets.emplace(groups[i].begin(), groups[i].end());
  return sets;
}

void CheckPartition(const std::vector<SampleSize>& sizes, const GroupLimits& limits,
                    const Grouping& grouping) {
  std::vector<int64_t> uses(sizes.size(), 0);
  for (int64_t i = 0; i < grouping.groups.size(); ++i) {
    CHECK_FALSE(grouping.groups[i].empty());
    const LayerLoad load = GroupLoad(sizes, grouping.groups[i]);
    CHECK(load.patches <= limits.patches);
    CHECK(load.tokens <= limits.tokens);
    for (const int64_t sample : grouping.groups[i]) ++uses[static_cast<size_t>(sample)];
  }
  for (const int64_t sample : grouping.oversize) {
    CHECK_FALSE(limits.Hold(sizes[static_cast<size_t>(sample)]));
    ++uses[static_cast<size_t>(sample)];
  }
  CHECK(uses == std::vector<int64_t>(sizes.size(), 1));
}

// Standard deviation / mean of the groups' tokens.
double Spread(const std::vector<SampleSize>& sizes, const SampleGroups& groups) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < groups.size(); ++i) {
    const auto tokens = static_cast<double>(GroupLoad(sizes, groups[i]).tokens);
    sum += tokens;
    squares += tokens * tokens;
  }
  const double mean = sum / static_cast<double>(groups.size());
  return std::sqrt(squares / static_cast<double>(groups.size()) - mean * mean) / mean;
}

TEST_CASE("every sample is in one group, or beyond the limits", "[balance][cpu]") {
  SplitMix random(5);
  for (int round = 0; round < 40; ++round) {
    const GroupLimits limits = {static_cast<int64_t>(1 + random.Below(20)),
                                static_cast<int64_t>(64 + random.Below(4000))};
    const auto most_tiles = random.Below(12);  // 0: text alone
    std::vector<SampleSize> sizes;
    for (uint64_t i = random.Below(300); i > 0; --i) {
      sizes.push_back({static_cast<int32_t>(random.Below(most_tiles + 1)),
                       static_cast<int32_t>(1 + random.Below(1200))});
    }
    CheckPartition(sizes, limits, BalancedGroups(sizes, {limits, 3, round}));
  }
}

TEST_CASE("groups are no more than ISF's, and more even", "[balance][cpu]") {
  const std::vector<SampleSize> sizes = MixedSamples(20000);
  for (const int64_t tiles : {9, 12, 15, 20}) {
    const GroupLimits limits = {tiles, 4096};
    const Grouping even = BalancedGroups(sizes, {limits, 1, 0});
    CheckPartition(sizes, limits, even);
    const Grouping isf = IsfGroups(sizes, {limits, tiles, 3968, 50, 1024});
    INFO(tiles << " tiles");
    CHECK(even.groups.size() <= isf.groups.size());
    CHECK(Spread(sizes, even.groups) < Spread(sizes, isf.groups) / 2);
  }
}

TEST_CASE("groups that tokens fill are full", "[balance][cpu]") {
  const std::vector<SampleSize> sizes = MixedSamples(20000);
  int64_t tokens = 0;
  for (const SampleSize& size : sizes) tokens += size.tokens;
  const int64_t groups = BalancedGroups(sizes, {{20, 4096}, 1, 0}).groups.size();
  CHECK(static_cast<double>(tokens) / static_cast<double>(4096 * groups) > 0.99);
}

// Of long samples two do not fit together, and short ones fill what they leave.
TEST_CASE("as few groups as samples that do not fit together need", "[balance][cpu]") {
  std::vector<SampleSize> sizes(40, {1, 600});
  sizes.insert(sizes.end(), 80, {1, 200});
  const Grouping grouping = BalancedGroups(sizes, {{9, 1000}, 1, 0});
  CheckPartition(sizes, {9, 1000}, grouping);
  CHECK(grouping.groups.size() == 40);
}

// On a small set chance may make ISF's groups the fewer; they are the start, then.
TEST_CASE("random sets need no more groups than ISF forms", "[balance][cpu]") {
  SplitMix random(7);
  int64_t groups = 0, isf_groups = 0, more = 0;
  for (int round = 0; round < 60; ++round) {
    const GroupLimits limits = {static_cast<int64_t>(4 + random.Below(30)),
                                static_cast<int64_t>(1024 << random.Below(3))};
    const uint64_t most_tiles = 1 + random.Below(10), text = 20 + random.Below(600);
    std::vector<SampleSize> sizes;
    for (uint64_t i = 200 + random.Below(1500); i > 0; --i) {
      const auto tiles = static_cast<int32_t>(random.Below(most_tiles + 1));
      sizes.push_back({tiles, 64 * tiles + 10 + static_cast<int32_t>(random.Below(text))});
    }
    const Grouping even = BalancedGroups(sizes, {limits, 3, round});
    CheckPartition(sizes, limits, even);
    const IsfOptions isf{limits, limits.patches, limits.tokens - limits.tokens / 32};
    const int64_t by_isf = IsfGroups(sizes, isf).groups.size();
    groups += even.groups.size();
    isf_groups += by_isf;
    CHECK(even.groups.size() <= by_isf + 1);
    if (even.groups.size() > by_isf) ++more;
  }
  CHECK(groups < isf_groups);
  CHECK(more <= 3);
}

TEST_CASE("text alone is packed to the limit of tokens", "[balance][cpu]") {
  SplitMix random(9);
  std::vector<SampleSize> sizes;
  int64_t tokens = 0;
  for (int i = 0; i < 5000; ++i) {
    sizes.push_back({0, static_cast<int32_t>(20 + random.Below(700))});
    tokens += sizes.back().tokens;
  }
  const Grouping grouping = BalancedGroups(sizes, {{9, 2048}, 1, 0});
  CheckPartition(sizes, {9, 2048}, grouping);
  CHECK(static_cast<double>(tokens) / static_cast<double>(2048 * grouping.groups.size()) > 0.99);
  CHECK(Spread(sizes, grouping.groups) < 0.005);
}

TEST_CASE("who meets whom depends on seed and epoch alone", "[balance][cpu]") {
  const std::vector<SampleSize> sizes = MixedSamples(500);
  const std::vector<SampleSize> equal(90, {1, 36});
  const auto of = [](const std::vector<SampleSize>& samples, uint64_t seed, int64_t epoch) {
    return AsSets(BalancedGroups(samples, {{9, 4096}, seed, epoch}).groups);
  };
  for (const auto& samples : {sizes, equal}) {
    CHECK(of(samples, 1, 0) == of(samples, 1, 0));
    CHECK(of(samples, 1, 0) != of(samples, 2, 0));
    CHECK(of(samples, 1, 0) != of(samples, 1, 1));
  }
}

TEST_CASE("no sample, and none within the limits", "[balance][cpu]") {
  CHECK(BalancedGroups({}, {{9, 64}, 0, 0}).groups.size() == 0);
  const Grouping none = BalancedGroups(std::vector<SampleSize>{{1, 65}, {10, 1}}, {{9, 64}, 0, 0});
  CHECK(none.groups.size() == 0);
  CHECK(none.oversize == std::vector<int64_t>{0, 1});
}

}  // namespace
}  // namespace equipoise
