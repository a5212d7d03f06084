#include "balance/groups/step_assignment.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "balance/groups/balanced_groups.h"
#include "balance/load/balance_metrics.h"
#include "tests/balance/group_samples.h"

namespace equipoise {
namespace {

const LoadCost kCost = {.patch = 300, .token = 1, .token_pair = 0.0002};

std::vector<LayerLoad> RandomLoads(int64_t count) {
  SplitMix random(3);
  std::vector<LayerLoad> loads;
  for (int64_t i = 0; i < count; ++i) {
    loads.push_back(SingleSegment({static_cast<int64_t>(random.Below(10)), 0, 0},
                                  static_cast<int64_t>(100 + random.Below(4000))));
  }
  return loads;
}

std::vector<LayerLoad> EvenLoads(int64_t samples) {
  const std::vector<SampleSize> sizes = MixedSamples(samples);
  const Grouping grouping = BalancedGroups(sizes, {{9, 4096}, 1, 0});
  std::vector<LayerLoad> loads;
  for (int64_t i = 0; i < grouping.groups.size(); ++i) {
    loads.push_back(GroupLoad(sizes, grouping.groups[i]));
  }
  return loads;
}

bool IsPermutation(std::vector<int64_t> order, int64_t count) {
  std::sort(order.begin(), order.end());
  return order == Indices(count);
}

std::vector<LayerLoad> Pick(const std::vector<LayerLoad>& loads, std::span<const int64_t> which) {
  std::vector<LayerLoad> picked;
  for (const int64_t i : which) picked.push_back(loads[static_cast<size_t>(i)]);
  return picked;
}

// Standard deviation of the steps' tokens / mean.
double StepVariation(const std::vector<LayerLoad>& loads, const std::vector<int64_t>& order,
                     size_t batch) {
  std::vector<double> sums;
  for (size_t begin = 0; begin + batch <= order.size(); begin += batch) {
    double sum = 0;
    for (size_t i = 0; i < batch; ++i)
      sum += static_cast<double>(loads[static_cast<size_t>(order[begin + i])].tokens);
    sums.push_back(sum);
  }
  double mean = 0, squares = 0;
  for (const double sum : sums) mean += sum / static_cast<double>(sums.size());
  for (const double sum : sums) squares += (sum - mean) * (sum - mean);
  return std::sqrt(squares / static_cast<double>(sums.size())) / mean;
}

TEST_CASE("steps use each group once, whatever the sizes", "[balance][cpu]") {
  for (const int64_t count : {0, 1, 5, 32, 100, 257}) {
    const std::vector<LayerLoad> loads = RandomLoads(count);
    for (const int64_t batch : {1, 2, 7, 32, 300}) {
      for (const int64_t head : {0, 1, 6}) {
        INFO(count << " groups, " << batch << " a step, head " << head);
        CHECK(IsPermutation(AssignSteps(loads, {batch, head, kCost, 1, 0}), count));
      }
    }
  }
}

TEST_CASE("a step's rows are even over any number of data ranks, its tokens steady",
          "[balance][cpu]") {
  const std::vector<LayerLoad> loads = EvenLoads(60000);
  for (const int64_t ranks : {8, 16, 32}) {
    const auto batch = static_cast<size_t>(4 * ranks);
    const std::vector<int64_t> order =
        AssignSteps(loads, {static_cast<int64_t>(batch), 0, kCost, 1, 0});
    BalanceMeter meter({ranks, kCost, false});
    for (size_t begin = 0; begin + batch <= order.size(); begin += batch) {
      const auto step = Pick(loads, std::span(order).subspan(begin, batch));
      std::vector<MicroBatchLoad> rows;
      for (const int64_t i : AssignRows(step, ranks, kCost))
        rows.push_back({step[static_cast<size_t>(i)], 1, 0});
      meter.AddStep(rows);
    }
    const BalanceMetrics metrics = meter.metrics();
    INFO(ranks << " ranks");
    CHECK(metrics.dist_ratio_vision <= 0.02);
    CHECK(metrics.dist_ratio_text <= 0.02);
    CHECK(metrics.dist_ratio_time <= 0.01);
  }
}

TEST_CASE("steps vary no more than is allowed", "[balance][cpu]") {
  const std::vector<LayerLoad> loads = EvenLoads(60000);
  for (const double spread : {0.1, 0.03, 0.01}) {
    const auto order = AssignSteps(loads, {64, 0, kCost, 1, 0, spread});
    INFO(spread);
    CHECK(IsPermutation(order, std::ssize(loads)));
    CHECK(StepVariation(loads, order, 64) <= spread / 8);
  }
}

TEST_CASE("groups that differ much still make steps of like sums", "[balance][cpu]") {
  const std::vector<LayerLoad> loads = RandomLoads(4000);
  const double random = StepVariation(loads, Indices(4000), 16);
  CHECK(StepVariation(loads, AssignSteps(loads, {16, 0, kCost, 1, 0}), 16) < random);
}

TEST_CASE("steps depend on seed and epoch; a head is completed in the middle", "[balance][cpu]") {
  const std::vector<LayerLoad> loads = EvenLoads(3000);
  const auto steps = [&](uint64_t seed, int64_t epoch) {
    return AssignSteps(loads, {16, 0, kCost, seed, epoch});
  };
  CHECK(steps(1, 0) == steps(1, 0));
  CHECK(steps(1, 0) != steps(2, 0));
  CHECK(steps(1, 0) != steps(1, 1));
  const auto time_of = [&](int64_t i) { return kCost(loads[static_cast<size_t>(i)]); };
  std::vector<double> times;
  for (int64_t i = 0; i < std::ssize(loads); ++i) times.push_back(time_of(i));
  std::sort(times.begin(), times.end());
  const std::vector<int64_t> order = AssignSteps(loads, {16, 5, kCost, 1, 0});
  for (size_t i = 0; i < 5; ++i) {
    CHECK(time_of(order[i]) > times[times.size() / 4]);
    CHECK(time_of(order[i]) < times[times.size() * 3 / 4]);
  }
}

TEST_CASE("rows begin and end light, and no two heavy ones meet", "[balance][cpu]") {
  std::vector<LayerLoad> loads;
  for (const int64_t tokens : {80, 10, 70, 20, 60, 30, 50, 40})
    loads.push_back(SingleSegment({1, 0, 0}, tokens));
  std::vector<int64_t> tokens;
  for (const int64_t i : AssignRows(loads, 1, kCost))
    tokens.push_back(loads[static_cast<size_t>(i)].tokens);
  CHECK(tokens == std::vector<int64_t>{10, 80, 30, 70, 40, 60, 50, 20});
}

TEST_CASE("a rank that had less so far gets more, and a short row comes last", "[balance][cpu]") {
  std::vector<LayerLoad> loads;
  for (const int64_t tokens : {1, 2, 11, 12, 21}) loads.push_back(SingleSegment({1, 0, 0}, tokens));
  const std::vector<int64_t> order = AssignRows(loads, 2, kCost);
  CHECK(order == std::vector<int64_t>{0, 1, 3, 2, 4});
  CHECK(IsPermutation(AssignRows(RandomLoads(37), 8, kCost), 37));
  CHECK(AssignRows({}, 3, kCost).empty());
}

}  // namespace
}  // namespace equipoise
