#include "balance/groups/epoch_windows.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "balance/load/permutation.h"
#include "tests/balance/group_samples.h"

namespace equipoise {
namespace {

const char* const kNames[] = {"random", "length_grouped", "packed", "knapsack", "isf", "isf+"};

GroupOptions OptionsOf(const std::string& name) {
  GroupOptions options;
  options.method = ParseEnum<GroupMethod>(name).value();
  options.limits = {9, 4096};
  options.micro_batch = 4;
  options.global_batch = 32;
  options.cost = {.patch = 300, .token = 1, .token_pair = 0.0002};
  options.seed = 5;
  ChooseLimits(ListOf({}), options);
  return options;
}

// Places of each group of an epoch, in the order of steps.
struct Formed {
  std::vector<std::vector<int64_t>> groups;
  std::vector<int64_t> oversize;
  int64_t windows = 0, most = 0;
};

Formed Form(const std::vector<SampleSize>& sizes, const GroupOptions& options, int64_t window,
            int64_t epoch = 1, int64_t head = 0) {
  Formed formed;
  EpochWindows windows(ListOf(sizes), options, {window, epoch, head});
  while (windows.Next()) {
    ++formed.windows;
    const EpochGroups& part = windows.groups();
    formed.most = std::max<int64_t>(formed.most, std::ssize(windows.places()));
    REQUIRE(windows.begin() == std::ssize(formed.groups));
    const auto place = [&](int64_t i) { return windows.places()[static_cast<size_t>(i)]; };
    for (const int64_t group : part.order) {
      std::vector<int64_t>& places = formed.groups.emplace_back();
      for (const int64_t i : part.groups[group]) places.push_back(place(i));
    }
    for (const int64_t i : part.oversize) formed.oversize.push_back(place(i));
  }
  return formed;
}

TEST_CASE("a permutation has every number once, another one for another key", "[balance][cpu]") {
  for (const int64_t size : {1, 2, 3, 5, 64, 1000, 65537}) {
    const Permutation order(size, SplitMix(1)), other(size, SplitMix(2));
    std::vector<bool> seen(static_cast<size_t>(size), false);
    int64_t fixed = 0, same = 0;
    for (int64_t i = 0; i < size; ++i) {
      const int64_t number = order(i);
      REQUIRE((number >= 0 && number < size));
      REQUIRE_FALSE(seen[static_cast<size_t>(number)]);
      seen[static_cast<size_t>(number)] = true;
      fixed += number == i ? 1 : 0;
      same += number == other(i) ? 1 : 0;
    }
    if (size >= 1000) CHECK(fixed < 20);
    if (size >= 1000) CHECK(same < 20);
  }
}

TEST_CASE("windows use every sample once and hold no more than they may", "[balance][cpu]") {
  std::vector<SampleSize> sizes = MixedSamples(5000);
  sizes[7] = {12, 300};
  sizes[4000] = {1, 5000};
  for (const std::string name : kNames) {
    INFO(name);
    const GroupOptions options = OptionsOf(name);
    const Formed formed = Form(sizes, options, 600);
    CHECK(formed.windows > 5000 / 600);
    CHECK(formed.most <= 600);
    std::vector<int64_t> uses(sizes.size(), 0);
    for (const auto& group : formed.groups) {
      for (const int64_t place : group) ++uses[static_cast<size_t>(place)];
    }
    for (size_t i = 0; i < uses.size(); ++i) CHECK(uses[i] == (i == 7 || i == 4000 ? 0 : 1));
    std::vector<int64_t> oversize = formed.oversize;
    std::sort(oversize.begin(), oversize.end());
    CHECK(oversize == std::vector<int64_t>{7, 4000});
    CHECK(Form(sizes, options, 600).groups == formed.groups);
    CHECK(Form(sizes, options, 600, /*epoch=*/2).groups != formed.groups);
    CHECK(Form(sizes, options, 700).groups != formed.groups);
  }
}

TEST_CASE("a window of the whole epoch gives its groups", "[balance][cpu]") {
  const std::vector<SampleSize> sizes = MixedSamples(2000);
  for (const std::string name : kNames) {
    INFO(name);
    const GroupOptions options = OptionsOf(name);
    const EpochGroups whole = PlanEpoch(sizes, options, 1, /*head=*/3);
    std::vector<std::vector<int64_t>> groups;
    for (const int64_t group : whole.order) {
      groups.emplace_back(whole.groups[group].begin(), whole.groups[group].end());
    }
    for (const int64_t window : {int64_t{0}, int64_t{2000}, int64_t{1} << 40}) {
      const Formed formed = Form(sizes, options, window, 1, 3);
      CHECK(formed.windows == 1);
      CHECK(formed.groups == groups);
    }
  }
}

TEST_CASE("groups that are not full wait for the next window", "[balance][cpu]") {
  const std::vector<SampleSize> sizes = MixedSamples(20000);
  const GroupOptions options = OptionsOf("isf+");
  const auto summary = [&](int64_t window) {
    return SummarizeEpoch(EpochWindows(ListOf(sizes), options, {window, 0, 0}), /*data_ranks=*/8);
  };
  const EpochSummary whole = summary(0), windows = summary(2000);
  CHECK(windows.samples == 20000);
  // No more groups, though each window ends with some that are not full.
  CHECK(windows.groups <= whole.groups + whole.groups / 100);
  CHECK(windows.balance.fill_share > 0.99 * whole.balance.fill_share);
  // Even, if less so.
  CHECK(windows.balance.dist_ratio_vision < 0.01);
  CHECK(windows.balance.dist_ratio_text < 0.1);
}

TEST_CASE("a window too small for one full group still goes on", "[balance][cpu]") {
  const std::vector<SampleSize> sizes = MixedSamples(50);
  for (const int64_t window : {1, 2, 9}) {
    const Formed formed = Form(sizes, OptionsOf("isf+"), window);
    int64_t samples = 0;
    for (const auto& group : formed.groups) samples += std::ssize(group);
    CHECK(samples == 50);
  }
  CHECK(Form({}, OptionsOf("isf+"), 4).groups.empty());
}

}  // namespace
}  // namespace equipoise
