#include "parallel/zero/sharded_units.h"

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/parallel/run_ranks.h"

namespace equipoise {
namespace {

// Three layers of two parameters each, whose gradients two ranks share out.
class Model {
 public:
  explicit Model(int rank) {
    std::vector<std::vector<Parameter*>> units;
    for (int unit = 0; unit < 3; ++unit) {
      for (const int64_t size : {700, 30}) {
        auto parameter = std::make_unique<Parameter>();
        parameter->name = "p" + std::to_string(owned_.size());
        parameter->shape = {size};
        if (static_cast<size_t>(unit) == units.size()) units.emplace_back();
        units.back().push_back(parameter.get());
        owned_.push_back(std::move(parameter));
      }
    }
    flat_ = std::make_unique<FlatParameters>(units, at::kFloat,
                                             Sharding{ShardedState::kGradients, 2, rank});
  }
  FlatParameters& flat() { return *flat_; }
  Parameter& operator[](size_t i) { return *owned_[i]; }

 private:
  std::vector<std::unique_ptr<Parameter>> owned_;
  std::unique_ptr<FlatParameters> flat_;
};

void Require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// A backward over the layers, in which each gradient gets `value`.
void RunBackward(ShardedUnits& units, Model& model, double value) {
  std::vector<ShardedUnits::Use> uses;
  for (size_t unit = 3; unit-- > 0;) uses.push_back({{}, {unit}});
  units.Begin(uses);
  for (size_t unit = 3; unit-- > 0;) {
    units.Acquire();
    units.ShowGradients(unit);
    for (const size_t i : {2 * unit, 2 * unit + 1}) model[i].gradient.add_(value);
    units.Release();
  }
  units.End();
}

TEST_CASE("copies of a layer's gradients are summed when its last sum is there, not before",
          "[parallel][cpu]") {
  RunRanks(4, [](Communicator& world) {
    const int rank = world.rank();
    const auto pair = world.Split(rank / 2, rank, "pair");
    const auto copies = world.Split(rank % 2, rank, "copies");
    Model model(pair->rank());
    ShardedUnits units(model.flat(), *pair, copies.get());
    for (const int steps : {1, 2}) {
      model.flat().ZeroGradient();
      units.Expect({{0, 2}, {1, 2}, {2, 2}});
      const int64_t before = units.traffic().copied;
      RunBackward(units, model, rank + 1);
      Require(units.traffic().copied == before, "summed over copies too early");
      RunBackward(units, model, 10 * (rank + 1));
      // All but those of the layer that is summed over the pair at the moment.
      const int64_t layer = model.flat().GradientSlice(0).numel() * 4;
      Require(units.traffic().copied == before + 2 * layer, "not summed beside the pass");
      units.Finish();
      Require(units.traffic().copied == before + 3 * layer, "not all are summed");
      for (size_t i = 0; i < 6; ++i) {
        const int64_t begin = model.flat().gradient_offset(i);
        const Range whole{begin, begin + model[i].numel()};
        for (const Shards::Run& run : model.flat().trained().RunsIn(whole, pair->rank()))
          Require(model.flat().GradientOf(run).eq(11 * (1 + 2 + 3 + 4)).all().item<bool>(),
                  "not the sum over all ranks, in step " + std::to_string(steps));
      }
    }
  });
}

}  // namespace
}  // namespace equipoise
