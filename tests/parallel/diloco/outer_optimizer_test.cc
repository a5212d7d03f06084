#include "parallel/diloco/outer_optimizer.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/sgd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/parallel/run_ranks.h"
#include "tests/parallel/zero/small_model.h"

namespace equipoise {
namespace {

using testing::SmallModel;
using testing::SmallModelSetting;

constexpr int kRounds = 3, kSteps = 2;  // of the inner optimizer in each round

// What a rank's share holds at the end of a round: the model's weights before and after it, and
// those that the next round begins with.
struct RoundOfRank {
  at::Tensor trained, begun, after;
  at::Tensor values;  // of the whole model, after
};

struct Setting {
  int islands = 2, ranks = 1;  // of each
  SmallModelSetting model = {};
  OuterOptions outer = {};
};

at::Tensor Share(const ZeroOptimizer& optimizer) {
  return optimizer.Masters({0, optimizer.share_numel()}).clone();
}

// [island][rank of it][round], behind them what the first round begins with.
using Rounds = std::vector<std::vector<std::vector<RoundOfRank>>>;
Rounds Run(const Setting& setting) {
  Rounds all(static_cast<size_t>(setting.islands),
             std::vector<std::vector<RoundOfRank>>(static_cast<size_t>(setting.ranks)));
  RunRanks(setting.islands * setting.ranks, [&](Communicator& world) {
    const int number = world.rank() / setting.ranks, place = world.rank() % setting.ranks;
    const auto island = world.Split(number, place, "island");
    const auto peers = world.Split(place, number, "islands");
    SmallModel model(setting.model, *island, &world);
    OuterOptimizer outer(*model.optimizer, setting.islands > 1 ? peers.get() : nullptr,
                         setting.outer);
    outer.Begin();
    std::vector<RoundOfRank>& rounds = all[static_cast<size_t>(number)][static_cast<size_t>(place)];
    rounds.push_back({{}, outer.weights().clone(), Share(*model.optimizer), {}});
    for (int round = 0; round < kRounds; ++round) {
      for (int step = 0; step < kSteps; ++step) model.Step(round * kSteps + step);
      RoundOfRank& now = rounds.emplace_back();
      now.trained = Share(*model.optimizer);
      outer.Step();
      now.begun = outer.weights().clone();
      now.after = Share(*model.optimizer);
      model.flat().AwaitValues();
      std::vector<at::Tensor> values;
      for (const Parameter* parameter : model.list()) values.push_back(parameter->value.flatten());
      now.values = at::cat(values);
    }
  });
  return all;
}

// By LibTorch's optimizer: what each round begins with, for one rank's place.
std::vector<at::Tensor> Expected(const Rounds& all, size_t place, const OuterOptions& options) {
  at::Tensor weights = all[0][place][0].begun.clone();
  torch::optim::SGD sgd({weights}, torch::optim::SGDOptions(options.lr)
                                       .momentum(options.momentum)
                                       .nesterov(options.momentum > 0));
  std::vector<at::Tensor> begun = {weights.clone()};
  for (size_t round = 1; round <= kRounds; ++round) {
    at::Tensor mean = at::zeros_like(weights);
    for (const auto& island : all) mean.add_(island[place][round].trained);
    mean.div_(static_cast<double>(all.size()));
    weights.mutable_grad() = all[0][place][round - 1].after.sub(mean);
    sgd.step();
    begun.push_back(weights.clone());
  }
  return begun;
}

void CheckRounds(const Setting& setting) {
  const Rounds all = Run(setting);
  for (size_t place = 0; place < static_cast<size_t>(setting.ranks); ++place) {
    const std::vector<at::Tensor> expected = Expected(all, place, setting.outer);
    for (size_t round = 1; round <= kRounds; ++round) {
      const RoundOfRank& first = all[0][place][round];
      INFO("round " << round << ", rank " << place);
      CHECK(at::allclose(first.begun, expected[round], 1e-5, 1e-6));
      CHECK_FALSE(at::equal(first.begun, first.trained));
      for (const auto& island : all) {
        CHECK(at::equal(island[place][round].begun, first.begun));
        CHECK(at::equal(island[place][round].after, first.after));
        CHECK(at::equal(island[place][round].values, all[0][0][round].values));
      }
      if (setting.islands > 1) CHECK_FALSE(at::equal(all[1][place][round].trained, first.trained));
    }
  }
}

TEST_CASE("the outer optimizer is SGD with Nesterov's momentum on the mean of all islands") {
  const int islands = GENERATE(1, 2, 3);
  CheckRounds({.islands = islands});
  CheckRounds({.islands = islands, .ranks = 2, .model = {.zero = 1}});
  CheckRounds({.islands = islands, .ranks = 2});
  CheckRounds({.islands = islands, .outer = {.lr = 1, .momentum = 0}});
}

TEST_CASE("a model goes on from the outer weights, to the bit where it has masters of 32 bits") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const int zero = GENERATE(0, 1);
  const Setting setting{.ranks = 2, .model = {.zero = zero, .dtype = dtype}};
  CheckRounds(setting);
  for (const auto& island : Run(setting)) {
    for (const auto& rank : island) {
      for (const RoundOfRank& round : rank) CHECK(at::equal(round.after, round.begun));
    }
  }
}

TEST_CASE("a model without masters goes on from the outer weights rounded to nearest") {
  const Setting setting{.ranks = 2,
                        .model = {.zero = 1, .dtype = at::kBFloat16, .rounding_seed = 3}};
  CheckRounds(setting);
  const Rounds all = Run(setting);
  for (const auto& rank : all[0]) {
    for (size_t round = 1; round <= kRounds; ++round) {
      const at::Tensor rounded = rank[round].begun.to(at::kBFloat16).to(at::kFloat);
      CHECK(at::allclose(rank[round].after, rounded, 1e-2, 0));  // ties may go the other way
      CHECK_FALSE(at::equal(rank[round].begun, rounded));
      CHECK(at::allclose(rank[round].after, rank[round].begun, 1.0 / 256, 0));
    }
  }
}

TEST_CASE("what a model without masters moves by in a round counts, below a step of bf16 too") {
  const Setting setting{.islands = 1,
                        .model = {.dtype = at::kBFloat16, .rounding_seed = 3},
                        .outer = {.lr = 1, .momentum = 0}};
  const Rounds all = Run(setting);
  at::Tensor moved = at::zeros_like(all[0][0][0].begun);
  for (size_t round = 1; round <= kRounds; ++round) {
    const RoundOfRank &before = all[0][0][round - 1], &now = all[0][0][round];
    moved.add_(now.trained.sub(before.after));
    CHECK(at::allclose(now.begun.sub(all[0][0][0].begun), moved, 1e-5, 1e-6));
  }
}

TEST_CASE("what islands send in bf16 is rounded, alike on all of them") {
  const Setting exact{.islands = 3, .ranks = 2, .model = {.zero = 1}};
  Setting rounded = exact;
  rounded.outer.reduce_dtype = at::kBFloat16;
  const Rounds fp32 = Run(exact), bf16 = Run(rounded);
  for (size_t place = 0; place < 2; ++place) {
    const at::Tensor &begun = fp32[0][place][1].begun, &first = fp32[0][place][0].begun;
    const at::Tensor &near = bf16[0][place][1].begun, moved = begun.sub(first);
    CHECK_FALSE(at::equal(near, begun));
    CHECK(near.sub(begun).norm().item<double>() < moved.norm().item<double>() / 200);
    for (const auto& island : bf16) {
      for (size_t round = 1; round <= kRounds; ++round)
        CHECK(at::equal(island[place][round].begun, bf16[0][place][round].begun));
    }
  }
}

TEST_CASE("how an island is spread over its ranks changes no bit of the outer step") {
  const auto values = [](const Setting& setting) {
    std::vector<at::Tensor> rounds;
    const Rounds all = Run(setting);
    for (const RoundOfRank& round : all[0][0]) rounds.push_back(round.values);
    return rounds;
  };
  const auto whole = values({.islands = 2, .ranks = 2});
  const auto shared = values({.islands = 2, .ranks = 2, .model = {.zero = 1}});
  for (size_t round = 1; round < whole.size(); ++round)
    CHECK(at::equal(whole[round], shared[round]));
}

TEST_CASE("the state of a round is set and read by parameter") {
  RunRanks(2, [](Communicator& world) {
    SmallModel model({.zero = 1}, world);
    OuterOptimizer outer(*model.optimizer, nullptr, {});
    outer.Begin();
    model.Step(1);
    const at::Tensor trained = Share(*model.optimizer);
    const at::Tensor begun = outer.weights().clone();
    outer.SetModel(outer.weights());
    if (!at::equal(Share(*model.optimizer), begun)) throw std::runtime_error("not begun");
    outer.SetModel(trained);
    if (!at::equal(Share(*model.optimizer), trained)) throw std::runtime_error("not trained");
    if (!at::equal(outer.weights(), begun)) throw std::runtime_error("begun was changed");
    int64_t elements = 0;
    for (const auto& state : model.optimizer->StatesOf("outer.", outer.weights(), false)) {
      if (state.name != "outer." + state.parameter->name) throw std::runtime_error(state.name);
      elements += state.values.numel();
      state.values.Get().fill_(2);  // a view
    }
    if (outer.weights().eq(2).sum().item<int64_t>() != elements)
      throw std::runtime_error("not a view");
  });
}

}  // namespace
}  // namespace equipoise
