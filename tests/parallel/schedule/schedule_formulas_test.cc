// The closed formulas of step time and kept activations, F and B the seconds of a whole rank.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "parallel/schedule/builders.h"
#include "parallel/schedule/passes.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {
namespace {

struct Shape {
  std::string name;
  int ranks, chunks, micro_batches;
  double forward_s, backward_s;
};

StageGraph RoundRobin(int ranks, int chunks) {
  std::vector<int> rank_of_stage(ranks * chunks);
  for (int s = 0; s < ranks * chunks; ++s) rank_of_stage[s] = s % ranks;
  return ChainGraph(rank_of_stage);
}

// Each chunk costs its share of the rank's time and keeps its share of the rank's activations.
Simulation Run(const Shape& shape) {
  SimulationCosts costs;
  costs.seconds = [&](const Op& op) {
    return (IsForward(op.kind) ? shape.forward_s : shape.backward_s) / shape.chunks;
  };
  costs.kept_bytes = [&](int, int) { return 1.0 / shape.chunks; };
  const StageGraph graph = RoundRobin(shape.ranks, shape.chunks);
  return Simulate(BuildSchedule(shape.name, graph, shape.micro_batches), costs);
}

// Calls check(shape, result) for every size and ratio of backward to forward.
template <class Check>
void Sweep(const std::string& name, const std::vector<int>& chunks, Check check) {
  for (int ranks : {1, 2, 3, 4, 5, 8}) {
    for (int count : chunks) {
      for (int micro_batches : {1, 2, 3, 4, 5, 7, 8, 12, 16, 32}) {
        for (double backward_s : {2.0, 1.0, 2.5}) {
          const Shape shape{name, ranks, count, micro_batches, 1.0, backward_s};
          INFO(name << " P=" << ranks << " v=" << count << " M=" << micro_batches
                    << " B=" << backward_s);
          check(shape, Run(shape));
        }
      }
    }
  }
}

double Work(const Shape& s) { return s.micro_batches * (s.forward_s + s.backward_s); }
double Fill(const Shape& s) { return (s.ranks - 1) * (s.forward_s + s.backward_s) / s.chunks; }

TEST_CASE("naive: one micro-batch after the other", "[formulas][cpu]") {
  Sweep("naive", {1}, [](const Shape& shape, const Simulation& result) {
    CHECK(result.step_s == Approx(shape.ranks * Work(shape)));
    for (double kept : result.peak_kept_bytes) CHECK(kept == Approx(1));
  });
}

TEST_CASE("gpipe: M (F + B) + (P - 1)(F + B), keeps M", "[formulas][cpu]") {
  Sweep("gpipe", {1}, [](const Shape& shape, const Simulation& result) {
    CHECK(result.step_s == Approx(Work(shape) + Fill(shape)));
    for (double kept : result.peak_kept_bytes) CHECK(kept == Approx(shape.micro_batches));
    for (double busy : result.busy_s) CHECK(busy == Approx(Work(shape)));
  });
}

TEST_CASE("1f1b: the time of gpipe, keeps P - r", "[formulas][cpu]") {
  Sweep("1f1b", {1}, [](const Shape& shape, const Simulation& result) {
    CHECK(result.step_s == Approx(Work(shape) + Fill(shape)));
    for (int r = 0; r < shape.ranks; ++r) {
      CHECK(result.peak_kept_bytes[r] == Approx(std::min(shape.micro_batches, shape.ranks - r)));
      const double bubbles = (shape.ranks - 1.0) / (shape.micro_batches + shape.ranks - 1);
      CHECK(result.bubble_share[r] == Approx(bubbles).margin(1e-12));
    }
  });
}

TEST_CASE("zb_h1: weight gradients fill the end of 1f1b", "[formulas][cpu]") {
  constexpr double kF = 1.0;
  for (int ranks : {1, 2, 3, 4, 5, 8}) {
    for (int micro_batches : {1, 2, 3, 4, 5, 7, 8, 12, 16, 32}) {
      for (const auto& [input_s, weight_s] : {std::pair(1.0, 1.0), std::pair(1.25, 0.75)}) {
        CAPTURE(ranks, micro_batches, input_s);
        SimulationCosts costs;
        costs.seconds = [input = input_s, weight = weight_s](const Op& op) {
          if (IsForward(op.kind)) return kF;
          return op.kind == OpKind::kInputGradient ? input : weight;
        };
        const StageGraph graph = RoundRobin(ranks, 1);
        const Simulation result = Simulate(BuildZbH1(graph, micro_batches), costs);
        const Shape plain{"1f1b", ranks, 1, micro_batches, kF, input_s + weight_s};
        CHECK(result.step_s <= Run(plain).step_s + 1e-9);
        for (double busy : result.busy_s) CHECK(busy == Approx(Work(plain)));
        for (double kept : result.peak_kept_bytes) CHECK(kept <= std::min(micro_batches, ranks));
        if (micro_batches < ranks) continue;
        // arXiv 2401.10241 table 2.
        CHECK(result.step_s == Approx(Work(plain) + (ranks - 1) * (kF + input_s - weight_s)));
        for (double kept : result.peak_kept_bytes) CHECK(kept == Approx(ranks));
      }
    }
  }
}

TEST_CASE("zb_v: half the fill of zb_h1, and as much kept on every rank", "[formulas][cpu]") {
  for (int ranks : {1, 2, 3, 4, 5, 8}) {
    for (int micro_batches : {1, 2, 3, 4, 5, 7, 8, 12, 16, 32}) {
      CAPTURE(ranks, micro_batches);
      std::vector<int> rank_of_stage;
      for (int stage = 0; stage < 2 * ranks; ++stage)
        rank_of_stage.push_back(RankOfPlace(Placement::kV, stage, ranks));
      SimulationCosts costs;  // F, I and W of a whole rank last a second each
      costs.seconds = [](const Op&) { return 0.5; };
      costs.kept_bytes = [](int, int) { return 0.5; };
      const Simulation result = Simulate(BuildZbV(ChainGraph(rank_of_stage), micro_batches), costs);
      const Shape plain{"1f1b", ranks, 1, micro_batches, 1.0, 2.0};
      for (double busy : result.busy_s) CHECK(busy == Approx(Work(plain)));
      for (double kept : result.peak_kept_bytes) CHECK(kept <= std::min(micro_batches, ranks));
      CHECK(result.step_s <= Run(plain).step_s + 1e-9);
      if (micro_batches < 2 * ranks - 1) continue;
      // arXiv 2401.10241 section 6; the first rank waits for nothing, the last begins the latest.
      CHECK(result.step_s == Approx(Work(plain) + (ranks - 1) * 0.5));
      for (double kept : result.peak_kept_bytes) CHECK(kept == Approx(ranks));
    }
  }
}

TEST_CASE("interleaved: the fill of 1f1b divided by v", "[formulas][cpu]") {
  Sweep("interleaved", {1, 2, 3, 4}, [](const Shape& shape, const Simulation& result) {
    for (double busy : result.busy_s) CHECK(busy == Approx(Work(shape)));
    if (shape.micro_batches % shape.ranks != 0) {
      // Padded to whole rounds of P, which then have empty places.
      Shape padded = shape;
      padded.micro_batches += shape.ranks - shape.micro_batches % shape.ranks;
      CHECK(result.step_s <= (Work(padded) + Fill(padded)) * (1 + 1e-12));
      CHECK(result.step_s >= Work(shape) + Fill(shape) / shape.chunks - 1e-9);
      return;
    }
    CHECK(result.step_s == Approx(Work(shape) + Fill(shape)));
    for (int r = 0; r < shape.ranks; ++r) {
      const int ahead = (shape.chunks - 1) * shape.ranks + 2 * (shape.ranks - r - 1) + 1;
      CHECK(result.peak_kept_bytes[r] ==
            Approx(std::min<double>(shape.micro_batches, 1.0 * ahead / shape.chunks)));
    }
  });
}

TEST_CASE("interleaved: an encoder on its own rank adds one forward and one backward",
          "[formulas][cpu]") {
  constexpr double kForwardS = 0.1, kBackwardS = 0.2;
  Sweep("interleaved", {1, 2, 3, 4}, [](const Shape& shape, const Simulation& alone) {
    std::vector<int> rank_of_stage = {0};
    for (int s = 0; s < shape.ranks * shape.chunks; ++s)
      rank_of_stage.push_back(1 + s % shape.ranks);
    StageGraph graph = ChainGraph(rank_of_stage);
    graph.stages[0].encoder = true;
    SimulationCosts costs;
    costs.seconds = [&](const Op& op) {
      if (op.kind == OpKind::kEncoderForward) return kForwardS;
      if (op.kind == OpKind::kEncoderBackward) return kBackwardS;
      return (IsForward(op.kind) ? shape.forward_s : shape.backward_s) / shape.chunks;
    };
    const Simulation result =
        Simulate(BuildSchedule(shape.name, graph, shape.micro_batches), costs);
    CHECK(result.step_s == Approx(kForwardS + alone.step_s + kBackwardS));
  });
}

TEST_CASE("bubble shares of four ranks and eight micro-batches", "[formulas][cpu]") {
  const auto share = [](const std::string& name, int chunks) {
    return Run({name, 4, chunks, 8, 1.0, 2.0}).bubble_share[0];
  };
  CHECK(share("naive", 1) == Approx(0.75));
  CHECK(share("gpipe", 1) == Approx(0.273).margin(5e-4));
  CHECK(share("1f1b", 1) == Approx(0.273).margin(5e-4));
  CHECK(share("interleaved", 2) == Approx(0.158).margin(5e-4));
}

// A chain with its own seconds for each stage.
struct Uneven {
  std::vector<double> forward_s, backward_s;
  int micro_batches = 1;

  Simulation Run(const std::string& name) const {
    SimulationCosts costs;
    costs.seconds = [&](const Op& op) {
      return (IsForward(op.kind) ? forward_s : backward_s)[op.stage];
    };
    const StageGraph graph = RoundRobin(static_cast<int>(forward_s.size()), 1);
    return Simulate(BuildSchedule(name, graph, micro_batches), costs);
  }
};

double Sum(const std::vector<double>& s) { return std::accumulate(s.begin(), s.end(), 0.0); }
double Max(const std::vector<double>& s) { return *std::max_element(s.begin(), s.end()); }

// The time that one micro-batch after the other spends in a pipeline of such stages.
double Pipelined(const std::vector<double>& stages, int micro_batches) {
  return Sum(stages) + (micro_batches - 1) * Max(stages);
}

Uneven RandomStages(std::mt19937& random) {
  std::uniform_real_distribution<double> seconds(0.2, 3);
  Uneven uneven;
  const int ranks = std::uniform_int_distribution<int>(1, 8)(random);
  for (int s = 0; s < ranks; ++s) {
    uneven.forward_s.push_back(seconds(random));
    uneven.backward_s.push_back(seconds(random));
  }
  uneven.micro_batches = std::uniform_int_distribution<int>(1, 24)(random);
  return uneven;
}

std::vector<double> Totals(const Uneven& uneven) {
  std::vector<double> totals = uneven.forward_s;
  for (size_t s = 0; s < totals.size(); ++s) totals[s] += uneven.backward_s[s];
  return totals;
}

TEST_CASE("gpipe with uneven stages: sum f + (M - 1) max f, and so for b", "[formulas][cpu]") {
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    const Uneven uneven = RandomStages(random);
    CHECK(uneven.Run("gpipe").step_s == Approx(Pipelined(uneven.forward_s, uneven.micro_batches) +
                                               Pipelined(uneven.backward_s, uneven.micro_batches)));
  }
}

TEST_CASE("1f1b with uneven stages and b = 2 f: at most sum t + (M - 1) max t", "[formulas][cpu]") {
  std::mt19937 random(2);
  int exact = 0;
  constexpr int kCases = 1000;
  for (int i = 0; i < kCases; ++i) {
    Uneven uneven = RandomStages(random);
    for (size_t s = 0; s < uneven.forward_s.size(); ++s) {
      uneven.backward_s[s] = 2 * uneven.forward_s[s];
    }
    const double bound = Pipelined(Totals(uneven), uneven.micro_batches);
    const double step_s = uneven.Run("1f1b").step_s;
    CHECK(step_s <= bound * (1 + 1e-12));
    CHECK(step_s >= uneven.micro_batches * Max(Totals(uneven)) * (1 - 1e-12));
    exact += step_s == Approx(bound);
  }
  CHECK(exact > kCases / 10);  // the bound is met
}

TEST_CASE("1f1b with any f : b stays near that bound", "[formulas][cpu]") {
  std::mt19937 random(3);
  for (int i = 0; i < 1000; ++i) {
    const Uneven uneven = RandomStages(random);
    CHECK(uneven.Run("1f1b").step_s <= 1.05 * Pipelined(Totals(uneven), uneven.micro_batches));
  }
}

TEST_CASE("1f1b behind a frozen encoder: sum t + (M - 1) max t exactly", "[formulas][cpu]") {
  std::mt19937 random(4);
  for (int i = 0; i < 1000; ++i) {
    Uneven uneven = RandomStages(random);
    const double forward_s = uneven.forward_s.back();
    for (size_t s = 0; s < uneven.forward_s.size(); ++s) {
      if (s > 0) uneven.forward_s[s] = forward_s;
      uneven.backward_s[s] = s > 0 ? 2 * forward_s : 0;
    }
    CHECK(uneven.Run("1f1b").step_s == Approx(Pipelined(Totals(uneven), uneven.micro_batches)));
    // The list without the backwards of the encoder, which do nothing, takes as long or less.
    SimulationCosts costs;
    costs.seconds = [&](const Op& op) {
      return (IsForward(op.kind) ? uneven.forward_s : uneven.backward_s)[op.stage];
    };
    StageGraph graph = RoundRobin(static_cast<int>(uneven.forward_s.size()), 1);
    graph.stages[0].needs_weight_gradient = false;
    if (graph.num_stages() > 1) graph.stages[1].needs_input_gradient = false;
    const Schedule dropped =
        DropIdleOps(BuildSchedule("1f1b", graph, uneven.micro_batches), StepWork());
    for (const Op& op : dropped.ranks[0]) CHECK(IsForward(op.kind));
    const Simulation result = Simulate(dropped, costs);
    CHECK(result.step_s <= uneven.Run("1f1b").step_s * (1 + 1e-12));
    CHECK(result.peak_kept_bytes[0] == 0);
  }
}

}  // namespace
}  // namespace equipoise
