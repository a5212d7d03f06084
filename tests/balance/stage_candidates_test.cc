#include "balance/search/stage_candidates.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "balance/load/load_cost.h"
#include "balance/load/partition.h"
#include "models/families/families.h"
#include "models/families/presets.h"
#include "tests/models/load_of.h"

namespace equipoise {
namespace {

CutCosts Layers(const std::vector<double>& seconds) {
  return {seconds, std::vector<double>(seconds.size(), 1.0)};
}

// All ways to cut, in lexicographic order.
std::vector<std::vector<int>> AllWays(int layers, int stages) {
  std::vector<std::vector<int>> all;
  std::vector<bool> cut(layers - 1, false);
  std::fill(cut.begin(), cut.begin() + stages - 1, true);
  do {
    std::vector<int> begins = {0};
    for (int i = 0; i < layers - 1; ++i) {
      if (cut[i]) begins.push_back(i + 1);
    }
    begins.push_back(layers);
    all.push_back(begins);
  } while (std::prev_permutation(cut.begin(), cut.end()));
  return all;
}

double LeastVarianceOf(const CutCosts& costs, const std::vector<std::vector<int>>& ways) {
  double least = MakeCandidate(costs, ways.front()).variance;
  for (const auto& way : ways) least = std::min(least, MakeCandidate(costs, way).variance);
  return least;
}

std::vector<double> Concatenated(int n, double a, int m, double b) {
  std::vector<double> all(n, a);
  all.insert(all.end(), m, b);
  return all;
}

struct Row {
  std::vector<double> layers;
  int stages;
  std::vector<int> anchor;  // cuts
  double variance;          // of the best
};

// Anchors worked out by hand, variances by brute force over all ways.
const std::vector<Row> kRows = {
    {{3, 3, 3, 3, 2, 2, 2, 2, 2, 2}, 4, {2, 4, 7}, 0},
    {Concatenated(3, 5, 9, 2), 3, {2, 6}, 2.0 / 3},
    {std::vector<double>(7, 1), 3, {2, 5}, 2.0 / 9},
    {{4, 4, 4, 4, 1, 3, 3, 3, 3, 3, 3, 2}, 4, {2, 5, 9}, 1.1875},
    {{10, 1, 1, 1, 1}, 3, {1, 2}, 128.0 / 9},
    {std::vector<double>(8, 2), 4, {2, 4, 6}, 0},
};

TEST_CASE("anchors cut at the nearest prefix sum", "[partition][cpu]") {
  for (const Row& row : kRows) {
    std::vector<int> begins = row.anchor;
    begins.insert(begins.begin(), 0);
    begins.push_back(static_cast<int>(row.layers.size()));
    CHECK(AnchorStages(Layers(row.layers), row.stages) == begins);
  }
  CHECK(AnchorStages(Layers({1, 1, 1}), 3) == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("the best candidate equals brute force", "[partition][cpu]") {
  for (const Row& row : kRows) {
    const CutCosts costs = Layers(row.layers);
    const auto best = BalancedStages(costs, row.stages, /*radius=*/1, /*keep=*/1);
    REQUIRE(best.size() == 1);
    CHECK(best[0].variance == Approx(row.variance).margin(1e-12));
    const auto all = AllWays(static_cast<int>(row.layers.size()), row.stages);
    CHECK(best[0].variance == Approx(LeastVarianceOf(costs, all)).margin(1e-12));
  }
}

TEST_CASE("candidates lie within the radius of the anchor", "[partition][cpu]") {
  const size_t counts[] = {24, 9, 9, 27, 3, 21};
  for (size_t i = 0; i < kRows.size(); ++i) {
    const CutCosts costs = Layers(kRows[i].layers);
    const std::vector<int> anchor = AnchorStages(costs, kRows[i].stages);
    size_t near = 0;
    for (const StageCandidate& each : BalancedStages(costs, kRows[i].stages, 1, 1000)) {
      bool within = true;
      for (size_t s = 0; s < anchor.size(); ++s) {
        within = within && std::abs(each.begins[s] - anchor[s]) <= 1;
      }
      near += within ? 1 : 0;
    }
    CHECK(near == counts[i]);
  }
}

// InternViT-6B and InternLM2-20B at 9 tiles and 4096 tokens: 45 + 48 layers and the head. FLOPs,
// and MiB that cross a cut in bf16; the projector lies in the last vision layer.
CutCosts InternVl26b() {
  CutCosts costs{Concatenated(45, 2.388e12, 48, 3.402e12), Concatenated(44, 56.305, 50, 48.0)};
  costs.layer_s.push_back(4.658e12);
  costs.output_bytes[44] = 27.0;
  return costs;
}

TEST_CASE("a model of 26 billion parameters is cut as by the paper's method", "[partition][cpu]") {
  const CutCosts costs = InternVl26b();
  CHECK(AnchorStages(costs, 4) == std::vector<int>{0, 29, 54, 74, 94});
  CHECK(BalancedStages(costs, 4, 1, 1000).size() == 27);
  CHECK(MakeCandidate(costs, {0, 46, 62, 77, 94}).sent_bytes == Approx(144.0));
  CHECK(MakeCandidate(costs, {0, 29, 54, 74, 94}).sent_bytes == Approx(152.305));
  CHECK(MakeCandidate(costs, {0, 22, 45, 69, 94}).sent_bytes == Approx(131.305));
}

TEST_CASE("bytes decide among equal variances", "[partition][cpu]") {
  CutCosts costs = Layers({1, 1, 1, 1, 1});
  costs.output_bytes = {9, 5, 3, 9, 9};  // 2 + 3 and 3 + 2 layers: the second sends less
  CHECK(BalancedStages(costs, 2, 1, 1)[0].begins == std::vector<int>{0, 3, 5});
  costs.output_bytes = {9, 3, 5, 9, 9};
  CHECK(BalancedStages(costs, 2, 1, 1)[0].begins == std::vector<int>{0, 2, 5});
}

TEST_CASE("the exact programme equals brute force, bytes included", "[partition][cpu]") {
  std::mt19937 random(3);
  std::uniform_int_distribution<int> seconds(0, 9), bytes(0, 9), layers(1, 9);
  for (int round = 0; round < 200; ++round) {
    CutCosts costs;
    for (int i = layers(random); i-- > 0;) {
      costs.layer_s.push_back(seconds(random));
      costs.output_bytes.push_back(bytes(random));
    }
    const int n = static_cast<int>(costs.layer_s.size());
    for (int stages = 1; stages <= n; ++stages) {
      for (const double weight : {0.0, 0.5, 10.0}) {
        const auto cost = [&](const std::vector<int>& begins) {
          const StageCandidate way = MakeCandidate(costs, begins);
          return way.variance * stages + weight * way.sent_bytes;
        };
        std::vector<double> all;
        for (const auto& way : AllWays(n, stages)) all.push_back(cost(way));
        std::sort(all.begin(), all.end());
        const auto found = LeastVariance(costs, {stages, weight, 3, -1, {}});
        REQUIRE(found.size() == std::min<size_t>(3, all.size()));
        for (size_t k = 0; k < found.size(); ++k) {
          REQUIRE(cost(found[k]) == Approx(all[k]).margin(1e-9));
        }
        REQUIRE(std::set(found.begin(), found.end()).size() == found.size());
      }
    }
  }
}

TEST_CASE("many stages are searched, not listed", "[partition][cpu]") {
  CutCosts costs = Layers(std::vector<double>(96, 1));
  for (size_t i = 0; i < 96; ++i) costs.layer_s[i] += 0.01 * static_cast<double>(i % 7);
  const auto best = BalancedStages(costs, 32, 1, 5);
  REQUIRE(best.size() == 5);
  const auto exact = LeastVariance(costs, {32, 0, 1, -1, {}});
  CHECK(best[0].variance == Approx(MakeCandidate(costs, exact[0]).variance));
}

TEST_CASE("even stages are as cheap as can be", "[partition][cpu]") {
  std::mt19937 random(5);
  std::uniform_int_distribution<int> seconds(0, 9), layers(1, 9);
  for (int round = 0; round < 100; ++round) {
    std::vector<double> costs;
    for (int i = layers(random); i-- > 0;) costs.push_back(seconds(random));
    const auto dearest = [&](const std::vector<int>& begins) {
      double most = 0;
      for (size_t s = 0; s + 1 < begins.size(); ++s) {
        double sum = 0;
        for (int i = begins[s]; i < begins[s + 1]; ++i) sum += costs[i];
        most = std::max(most, sum);
      }
      return most;
    };
    const int n = static_cast<int>(costs.size());
    for (int stages = 1; stages <= n; ++stages) {
      double least = 1e9;
      for (const auto& way : AllWays(n, stages)) least = std::min(least, dearest(way));
      REQUIRE(dearest(EvenStages(costs, stages)) == least);
    }
  }
}

TEST_CASE("layers are cut by the FLOPs of the passes that they run", "[partition][cpu]") {
  const ModelConfig model = PresetConfig("quickstart");
  const LayerLoad load = LoadOf(model, 3, 64);
  const std::vector<LayerSpec> specs = LayerSpecs(model);
  const std::vector<double> trained = LayerCosts(model, {}, load);
  const std::vector<double> some = LayerCosts(model, {"vision", "llm"}, load);
  double of_some = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    INFO(specs[i].name);
    const LayerSpec& spec = specs[i];
    double products = 0;
    for (const HalfCost* half : {&spec.attention, &spec.mlp}) {
      for (const Product& product : half->products)
        products += 2.0 * product.rows.At(load) * static_cast<double>(product.n * product.k);
    }
    const bool before = spec.component == Component::kEncoder;
    const bool weights = spec.component == Component::kConnector;
    CHECK(some[i] ==
          Approx(before ? spec.ForwardFlops(load) : trained[i] - (weights ? 0 : products)));
    of_some += some[i];
  }
  // Linear but for the pairs of attention, which are counted for themselves.
  CHECK(FlopsOfLoad(model, {"vision", "llm"})(load) == Approx(of_some));
}

}  // namespace
}  // namespace equipoise
