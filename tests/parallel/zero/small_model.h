#pragma once

#include <ATen/ops/empty.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "parallel/data_parallel/gradient_reducer.h"
#include "parallel/zero/zero_optimizer.h"

namespace equipoise::testing {

// Numbers that depend on (seed, length) alone.
inline at::Tensor Numbers(const std::vector<int64_t>& shape, uint64_t seed) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  auto* data = tensor.mutable_data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) data[i] = normal(random);
  return tensor;
}

struct SmallModelSetting {
  int zero = 0;
  at::ScalarType dtype = at::kFloat;
  int64_t bucket_bytes = 4096;
  at::ScalarType moments = at::kFloat;
  std::optional<uint64_t> rounding_seed = std::nullopt;
};

// A model without layers, trained by the ranks of a group, with gradients that are random numbers:
// parameters of odd sizes, one smaller than a shard, one larger than a bucket, two frozen, one
// without elements. Of several models, on the ranks of `models` together, each has gradients of its
// own.
class SmallModel {
 public:
  SmallModel(const SmallModelSetting& setting, Communicator& group, Communicator* models = nullptr)
      : group_(group), seed_(models == nullptr ? group.rank() : models->rank()) {
    const std::vector<std::vector<int64_t>> shapes = {{37, 11}, {5},    {70, 70}, {3, 3},
                                                      {1},      {0, 4}, {129},    {8, 9}};
    for (size_t i = 0; i < shapes.size(); ++i) {
      auto parameter = std::make_unique<Parameter>();
      parameter->name = "p" + std::to_string(i * 7 % 8);  // another order than that of names
      parameter->shape = shapes[i];
      parameter->trainable = i != 3 && i != 7;
      list_.push_back(parameter.get());
      owned_.push_back(std::move(parameter));
    }
    const int shards = setting.zero == 0 ? 1 : group.size();
    flat_ = std::make_unique<FlatParameters>(list_, setting.dtype, shards);
    const Shards layout =
        ZeroShards(ShardedStateOf(setting.zero), *flat_, group, setting.bucket_bytes);
    AdamWOptions options;
    options.moments = setting.moments;
    options.rounding_seed = setting.rounding_seed;
    optimizer = std::make_unique<ZeroOptimizer>(
        *flat_, DecayGroups(list_, std::vector<double>(list_.size(), 1.0), 0.05), options, layout,
        ZeroOptimizer::Groups{.data = group, .world = group, .models = models});
    reducer = layout.ranks() > 1 ? std::make_unique<GradientReducer>(*flat_, group, layout)
                                 : std::make_unique<GradientReducer>(*flat_, group);
    for (size_t i = 0; i < list_.size(); ++i) list_[i]->stored().copy_(Numbers(shapes[i], i));
    flat_->UpdateCompute();
    optimizer->TakeMasters();
  }

  // Returns the norm.
  double Step(int number) {
    flat_->ZeroGradient();
    for (size_t i = list_.size(); i-- > 0;) {
      if (!list_[i]->trainable) continue;
      list_[i]->AddGradient(Numbers(list_[i]->shape, 1000 * static_cast<uint64_t>(number) +
                                                         10 * static_cast<uint64_t>(seed_) + i));
      if (i != 4) reducer->Ready(*list_[i]);
    }
    reducer->Finish();
    const double norm = optimizer->GradientNorm();
    optimizer->Step(1e-2, ClipFactor(norm, 1.0));
    return norm;
  }

  FlatParameters& flat() { return *flat_; }
  const std::vector<Parameter*>& list() const { return list_; }

 private:
  Communicator& group_;
  int seed_;
  std::vector<std::unique_ptr<Parameter>> owned_;
  std::vector<Parameter*> list_;
  std::unique_ptr<FlatParameters> flat_;

 public:  // behind the parameters, which outlive them
  std::unique_ptr<ZeroOptimizer> optimizer;
  std::unique_ptr<GradientReducer> reducer;
};

}  // namespace equipoise::testing
