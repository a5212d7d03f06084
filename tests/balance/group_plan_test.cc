#include "balance/groups/group_plan.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "balance/groups/simple_groups.h"
#include "balance/groups/step_assignment.h"
#include "configs/base/error.h"
#include "tests/balance/group_samples.h"

namespace equipoise {
namespace {

const char* const kNames[] = {"random", "length_grouped", "packed", "knapsack", "isf", "isf+"};

std::vector<SampleSize> OfTokens(const std::vector<int32_t>& tokens) {
  std::vector<SampleSize> sizes;
  for (const int32_t each : tokens) sizes.push_back({1, each});
  return sizes;
}

std::vector<std::vector<int64_t>> Lists(const SampleGroups& groups) {
  std::vector<std::vector<int64_t>> lists;
  for (int64_t i = 0; i < groups.size(); ++i)
    lists.emplace_back(groups[i].begin(), groups[i].end());
  return lists;
}

GroupOptions OptionsOf(const std::string& name, int64_t ranks) {
  GroupOptions options;
  options.method = ParseEnum<GroupMethod>(name).value();
  options.limits = {9, 4096};
  options.micro_batch = 4;
  options.global_batch = 4 * ranks;
  options.cost = {.patch = 300, .token = 1, .token_pair = 0.0002};
  options.seed = 5;
  return options;
}

TEST_CASE("PadRatio and DistRatio of small cases", "[balance][cpu]") {
  const std::vector<SampleSize> sizes = OfTokens({100, 200, 300, 400});
  BalanceMeter padded({1, {}, true});
  padded.AddStep(std::vector{LoadOfGroup(sizes, Indices(4))});
  CHECK(padded.metrics().pad_ratio == Approx(0.375));
  CHECK(DistRatio(std::vector<double>{400, 300}, 2) == Approx(0.125));
  CHECK(DistRatio(std::vector<double>{400, 400}, 2) == 0);
  CHECK(DistRatio(std::vector<double>{0, 0}, 2) == 0);
  CHECK(DistRatio(std::vector<double>{400}, 2) == Approx(0.5));  // a rank without a micro-batch
  // Padded: text counts as long as the longest sample. Packed: the sum.
  BalanceMeter packed({2, {}, false});
  for (BalanceMeter* meter : {&padded, &packed}) {
    *meter = BalanceMeter({2, {.token = 1}, meter == &padded});
    meter->AddStep(std::vector{LoadOfGroup(sizes, std::vector<int64_t>{0, 3}),
                               LoadOfGroup(sizes, std::vector<int64_t>{1, 2})});
  }
  CHECK(padded.metrics().dist_ratio_text == Approx(0.125));
  CHECK(padded.metrics().pad_ratio == Approx(400.0 / 1400));
  CHECK(packed.metrics().dist_ratio_text == 0);
  CHECK(packed.metrics().pad_ratio == 0);
  CHECK(packed.metrics().dist_ratio_vision == 0);
}

TEST_CASE("padding is what is computed, fill is of the room", "[balance][cpu]") {
  const std::vector<SampleSize> sizes = OfTokens({100, 200, 300, 400});
  const auto measure = [&](const GroupOptions& options) {
    BalanceMeter meter(MeterOptions(options, /*data_ranks=*/1));
    meter.AddStep(std::vector{LoadOfGroup(sizes, Indices(4))});
    return meter.metrics();
  };
  GroupOptions options;
  options.limits = {9, 1250};
  CHECK(measure(options).pad_ratio == 0);
  CHECK(measure(options).fill_share == Approx(0.8));
  options.method = GroupMethod::kRandom;
  CHECK(measure(options).pad_ratio == 0);
  CHECK(measure(options).fill_share == 1);
  options.pad = true;
  CHECK(measure(options).pad_ratio == Approx(0.375));
  CHECK(measure(options).fill_share == Approx(0.625));
}

TEST_CASE("length_grouped deals even chunks as LLaVA does", "[balance][cpu]") {
  const std::vector<SampleSize> sizes = OfTokens({100, 90, 80, 70, 60, 50, 40, 30});
  const auto chunks = [&](int64_t count, int64_t samples) {
    return Lists(LengthGroupedGroups(sizes, Indices(samples), {(samples + 1) / count, count}));
  };
  CHECK(chunks(2, 8) == std::vector<std::vector<int64_t>>{{0, 3, 4, 7}, {1, 2, 5, 6}});
  CHECK(chunks(4, 8) == std::vector<std::vector<int64_t>>{{0, 7}, {1, 6}, {2, 5}, {3, 4}});
  CHECK(chunks(2, 7) == std::vector<std::vector<int64_t>>{{0, 2, 4, 6}, {1, 3, 5}});
}

TEST_CASE("packed fills rows, knapsack evens them out", "[balance][cpu]") {
  const std::vector<SampleSize> sizes = OfTokens({60, 50, 40, 30, 20});
  CHECK(Lists(PackedGroups(sizes, Indices(5), 100)) ==
        std::vector<std::vector<int64_t>>{{0, 2}, {1, 3, 4}});
  CHECK(Lists(KnapsackGroups(sizes, Indices(5), {9, 100})) ==
        std::vector<std::vector<int64_t>>{{0, 3}, {1, 2}, {4}});
  CHECK(Lists(KnapsackGroups(sizes, Indices(5), {1, 100})).size() == 5);
}

TEST_CASE("every method uses each sample once and repeats itself", "[balance][cpu]") {
  std::vector<SampleSize> sizes = MixedSamples(2000);
  sizes[7] = {12, 300};
  sizes[9] = {1, 5000};
  for (const std::string name : kNames) {
    INFO(name);
    const GroupOptions options = OptionsOf(name, 2);
    CHECK(ToString(options.method) == name);
    const EpochGroups epoch = PlanEpoch(sizes, options, 1);
    CHECK(epoch.oversize == std::vector<int64_t>{7, 9});
    std::vector<int64_t> uses(sizes.size(), 0), order = epoch.order;
    for (const int64_t group : order) {
      for (const int64_t sample : epoch.groups[group]) ++uses[static_cast<size_t>(sample)];
    }
    CHECK(std::count(uses.begin(), uses.end(), 1) == 1998);
    CHECK(std::count(uses.begin(), uses.end(), 0) == 2);
    CHECK(PlanEpoch(sizes, options, 1).order == epoch.order);
    CHECK(Lists(PlanEpoch(sizes, options, 2).groups) != Lists(epoch.groups));
  }
}

TEST_CASE("each method is as even as it claims", "[balance][cpu]") {
  const std::vector<SampleSize> sizes = MixedSamples(20000);
  const auto measure = [&](const std::string& name) {
    GroupOptions options = OptionsOf(name, 8);
    options.min_patches = 9;
    options.min_tokens = 3968;
    options.pad = HasFixedSamples(options.method);
    EpochMeter meter(options, /*data_ranks=*/8);
    meter.Add(PlanEpoch(sizes, options, 0));
    return meter.Finish();
  };
  const BalanceMetrics random = measure("random"), isf = measure("isf"), plus = measure("isf+");
  CHECK(random.pad_ratio > 0.25);
  CHECK(random.dist_ratio_vision > 0.25);
  CHECK(random.dist_ratio_text > 0.2);
  CHECK(measure("length_grouped").dist_ratio_vision < random.dist_ratio_vision);
  CHECK(isf.pad_ratio == 0);
  CHECK(isf.dist_ratio_vision < 0.03);
  CHECK(isf.dist_ratio_text > 0.1);
  CHECK(plus.pad_ratio == 0);
  CHECK(plus.dist_ratio_vision < 0.02);
  CHECK(plus.dist_ratio_text < 0.02);
  CHECK(plus.dist_ratio_time < 0.01);
  CHECK(plus.step_variation < isf.step_variation);
  CHECK(measure("packed").dist_ratio_text < 0.03);
  CHECK(measure("packed").dist_ratio_vision > 0.1);
  CHECK(measure("knapsack").dist_ratio_vision < measure("packed").dist_ratio_vision);
}

TEST_CASE("an island has the same groups with any number of data ranks, dealt evenly",
          "[balance][cpu]") {
  const std::vector<SampleSize> sizes = MixedSamples(4000);
  for (const std::string name : {"isf+", "random"}) {
    GroupOptions options = OptionsOf(name, 6);
    options.islands = 3;
    const EpochGroups epoch = PlanEpoch(sizes, options, 0);
    std::vector<LayerLoad> step;
    for (int64_t i = 0; i < options.global_batch; ++i)
      step.push_back(epoch.loads[static_cast<size_t>(epoch.order[static_cast<size_t>(i)])].load);
    // By island, then by its data rank.
    const auto dealt = [&](int64_t ranks) {
      const std::vector<int64_t> rows = RowsOfStep(step, options, 3 * ranks);
      std::vector<std::vector<std::vector<int64_t>>> islands(
          3, std::vector<std::vector<int64_t>>(static_cast<size_t>(ranks)));
      for (int64_t i = 0; i < std::ssize(rows); ++i) {
        const int64_t rank = i % (3 * ranks);
        islands[static_cast<size_t>(rank / ranks)][static_cast<size_t>(rank % ranks)].push_back(
            rows[static_cast<size_t>(i)]);
      }
      return islands;
    };
    const auto sets = [&](int64_t ranks) {
      std::vector<std::vector<int64_t>> all;
      for (const auto& island : dealt(ranks)) {
        std::vector<int64_t>& set = all.emplace_back();
        for (const auto& rank : island) set.insert(set.end(), rank.begin(), rank.end());
        std::sort(set.begin(), set.end());
      }
      return all;
    };
    INFO(name);
    const auto alone = sets(1);
    CHECK(sets(2) == alone);
    CHECK(sets(4) == alone);
    CHECK(alone[0].size() == 8);
    std::vector<int64_t> all;
    for (const auto& set : alone) all.insert(all.end(), set.begin(), set.end());
    std::sort(all.begin(), all.end());
    CHECK(all == Indices(24));
    if (name == "random") continue;
    // An island deals its groups as a run of it alone does.
    std::vector<LayerLoad> own;
    const std::vector<int64_t> mine = dealt(1)[1][0];
    for (const int64_t group : mine) own.push_back(step[static_cast<size_t>(group)]);
    const std::vector<int64_t> rows = AssignRows(own, 2, options.cost);
    for (size_t i = 0; i < rows.size(); ++i)
      CHECK(dealt(2)[1][i % 2][i / 2] == mine[static_cast<size_t>(rows[i])]);
  }
}

// Of an epoch over so many data ranks, with four micro-batches a step.
struct Evenness {
  int64_t groups = 0;
  double fill = 0;
  BalanceMetrics metrics;
};

Evenness EvennessOf(const std::vector<SampleSize>& sizes, GroupOptions options, int64_t ranks) {
  options.global_batch = 4 * ranks;
  EpochMeter meter(options, ranks);
  const EpochGroups epoch = PlanEpoch(sizes, options, 0);
  meter.Add(epoch);
  double tokens = 0;
  for (const SampleSize& size : sizes) tokens += size.tokens;
  const auto room = static_cast<double>(epoch.size() * options.limits.tokens);
  return {epoch.size(), tokens / room, meter.Finish()};
}

TEST_CASE("isf+ needs no more groups than isf and its steps are as even, at every limit",
          "[balance][cpu]") {
  const std::vector<SampleSize> sizes = MixedSamples(160000);
  for (const int64_t tiles : {9, 12, 15, 20}) {
    for (const int64_t ranks : {8, 64, 512}) {
      GroupOptions options;
      options.cost = {.patch = 300, .token = 1, .token_pair = 0.0002};
      options.limits = {tiles, 4096};
      options.method = GroupMethod::kIsf;
      ChooseLimits(ListOf(sizes), options);
      const Evenness isf = EvennessOf(sizes, options, ranks);
      options.method = GroupMethod::kIsfPlus;
      const Evenness plus = EvennessOf(sizes, options, ranks);
      INFO(tiles << " tiles, " << ranks << " ranks");
      CHECK(plus.groups <= isf.groups);
      CHECK(plus.metrics.step_variation <= isf.metrics.step_variation);
      CHECK(plus.metrics.dist_ratio_vision < isf.metrics.dist_ratio_vision);
      CHECK(plus.metrics.dist_ratio_text < isf.metrics.dist_ratio_text);
    }
  }
}

TEST_CASE("chosen limits leave packs full and rows even", "[balance][cpu]") {
  const std::vector<SampleSize> sizes = MixedSamples(40000);
  for (const int64_t tokens : {4096, 8192}) {
    GroupOptions options;
    options.cost = {.patch = 300, .token = 1, .token_pair = 0.0002};
    options.limits = {0, tokens};
    ChooseLimits(ListOf(sizes), options);
    const Evenness chosen = EvennessOf(sizes, options, 8);
    INFO(tokens << " tokens, " << options.limits.patches << " tiles");
    CHECK(chosen.fill >= 0.99);
    CHECK(chosen.metrics.dist_ratio_vision <= 0.015);
    CHECK(chosen.metrics.dist_ratio_text <= 0.015);
    --options.limits.patches;  // no more than needed
    CHECK(EvennessOf(sizes, options, 8).groups >= chosen.groups);
  }
}

// On few samples chance may need a group more with twice the tiles; the search must end.
TEST_CASE("limits of any small set are chosen, and hold its samples", "[balance][cpu]") {
  SplitMix random(21);
  for (int round = 0; round < 300; ++round) {
    const uint64_t most_tiles = random.Below(8), text = 1 + random.Below(900);
    std::vector<SampleSize> sizes;
    for (uint64_t i = 1 + random.Below(60); i > 0; --i) {
      const auto tiles = static_cast<int32_t>(random.Below(most_tiles + 1));
      sizes.push_back({tiles, 64 * tiles + 1 + static_cast<int32_t>(random.Below(text))});
    }
    GroupOptions options;
    options.limits = {0, 2048};
    ChooseLimits(ListOf(sizes), options);
    for (const SampleSize& size : sizes) CHECK(size.patches <= options.limits.patches);
  }
}

TEST_CASE("limits are chosen from the samples", "[balance][cpu]") {
  GroupOptions options;
  options.limits = {0, 4096};
  options.method = GroupMethod::kKnapsack;
  ChooseLimits(ListOf(MixedSamples(5000)), options);
  CHECK(options.limits.patches == 10);  // the average
  options.method = GroupMethod::kIsf;
  options.limits.patches = options.min_patches = 0;
  ChooseLimits(ListOf(MixedSamples(5000)), options);
  CHECK(options.limits.patches == 9);  // as the reference's search begins
  CHECK(options.min_patches == 9);
  CHECK(options.min_tokens == 3968);
  options = {};
  options.limits = {0, 4096};
  ChooseLimits(ListOf(std::vector<SampleSize>{{13, 3400}, {1, 4000}}), options);
  CHECK(options.limits.patches == 13);  // not below the largest sample
  options = {};
  options.limits = {5, 100};
  options.min_tokens = 7;
  ChooseLimits(ListOf({}), options);
  CHECK(options.limits.patches == 5);
  CHECK(options.min_tokens == 7);
}

TEST_CASE("limits are lowered down to the largest sample", "[balance][cpu]") {
  std::vector<SampleSize> sizes = MixedSamples(500);
  sizes.push_back({6, 1700});
  int64_t longest = 0;
  for (const SampleSize& size : sizes) longest = std::max<int64_t>(longest, size.tokens);
  for (const char* name : {"knapsack", "isf", "isf+"}) {
    INFO(name);
    GroupOptions options = OptionsOf(name, 2);
    options.limits = {0, 4096};
    ChooseLimits(ListOf(sizes), options);
    const std::vector<GroupLimits> lower = LowerLimits(ListOf(sizes), options, {});
    REQUIRE(lower.size() > 8);
    GroupLimits last = options.limits;
    for (const GroupLimits& each : lower) {
      CHECK(each.patches <= last.patches);
      CHECK(each.tokens <= last.tokens);
      CHECK(each.patches + each.tokens < last.patches + last.tokens);
      last = each;
    }
    CHECK(last.patches == 6);
    CHECK(last.tokens == longest);
    options.limits = last;
    CHECK(PlanEpoch(sizes, options, 0).oversize.empty());
  }
  GroupOptions options = OptionsOf("isf+", 2);
  for (const GroupLimits& each : LowerLimits(ListOf(sizes), options, {9, 0}))
    CHECK(each.patches == 9);
  for (const GroupLimits& each : LowerLimits(ListOf(sizes), options, {0, 4096}))
    CHECK(each.tokens == 4096);
  CHECK(LowerLimits(ListOf(sizes), options, {0, 4096}).back().patches == 6);
  CHECK(LowerLimits(ListOf(sizes), options, {9, 4096}).empty());
  // Samples beyond the limits are left out already: they hold nothing up.
  sizes.push_back({1, 4000});
  options.limits = {9, 3500};
  CHECK(LowerLimits(ListOf(sizes), options, {}).back().tokens == longest);
  for (const char* name : {"random", "length_grouped", "packed"}) {
    CHECK(LowerLimits(ListOf(sizes), OptionsOf(name, 2), {}).empty());
  }
}

TEST_CASE("groups and limits do not depend on the rows of a tile", "[balance][cpu]") {
  constexpr int32_t kRows = 1025;
  const std::vector<SampleSize> ones = MixedSamples(700);
  std::vector<SampleSize> tiles = ones;
  for (SampleSize& size : tiles) size.patches *= kRows;
  for (const char* name : kNames) {
    for (const int64_t limit : {0, 7}) {
      INFO(name << " " << limit);
      GroupOptions one = OptionsOf(name, 2), tile = one;
      one.cost.patch = kRows * 300;
      tile.patch_unit = kRows;
      one.limits.patches = limit;
      tile.limits.patches = limit * kRows;
      const auto equal = [](const GroupLimits& a, const GroupLimits& b) {
        return a.patches * kRows == b.patches && a.tokens == b.tokens;
      };
      ChooseLimits(ListOf(ones), one);
      ChooseLimits(ListOf(tiles), tile);
      CHECK(equal(one.limits, tile.limits));
      CHECK(tile.limit_units() == one.limits.patches);
      CHECK(one.min_patches * kRows == tile.min_patches);
      const auto lower = LowerLimits(ListOf(ones), one, {});
      const auto of_tiles = LowerLimits(ListOf(tiles), tile, {});
      CHECK(std::equal(lower.begin(), lower.end(), of_tiles.begin(), of_tiles.end(), equal));
      const auto scaled = ScaledLimits(ListOf(ones), one, 3500);
      const auto scaled_tiles = ScaledLimits(ListOf(tiles), tile, 3500);
      REQUIRE(scaled.has_value() == scaled_tiles.has_value());
      if (scaled) CHECK(equal(*scaled, *scaled_tiles));
      for (const bool last : {true, false}) {
        const EpochWindow window{1, 0, 3, last};
        const EpochGroups a = PlanWindow(ones, one, window), b = PlanWindow(tiles, tile, window);
        CHECK(Lists(a.groups) == Lists(b.groups));
        CHECK(a.order == b.order);
        CHECK(a.oversize == b.oversize);
        CHECK(a.carried == b.carried);
        CHECK(a.loads[0].load.patches * kRows == b.loads[0].load.patches);
      }
    }
  }
}

TEST_CASE("scaled limits hold every sample", "[balance][cpu]") {
  std::vector<SampleSize> sizes = MixedSamples(500);
  GroupOptions options = OptionsOf("isf+", 2);
  options.limits = {0, 4096};
  ChooseLimits(ListOf(sizes), options);
  const std::optional<GroupLimits> half = ScaledLimits(ListOf(sizes), options, 2048);
  REQUIRE(half);
  CHECK(half->tokens == 2048);
  CHECK(half->patches < options.limits.patches);
  options.limits = *half;
  CHECK(PlanEpoch(sizes, options, 0).oversize.empty());
  CHECK_FALSE(ScaledLimits(ListOf(sizes), options, 64));  // samples are longer
  for (const char* name : {"random", "length_grouped", "packed"}) {
    CHECK_FALSE(ScaledLimits(ListOf(sizes), OptionsOf(name, 2), 2048));
  }
}

}  // namespace
}  // namespace equipoise
