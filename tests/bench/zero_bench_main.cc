// Peak memory of weights, gradients and optimizer state of one rank, beside the formula:
//   mpirun -n RANKS zero_bench ZERO fp32|bf16 MILLIONS
// of trainable parameters, in layers of a million; a quarter as many are frozen. Rank 0 prints one
// line a rank: its number, peak bytes in LibTorch's tensors, bytes by the formula, bytes that it
// received and sent for layers in a step, and by the formula.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi_environment.h"
#include "parallel/data_parallel/gradient_reducer.h"
#include "parallel/zero/sharded_units.h"
#include "parallel/zero/zero_optimizer.h"
#include "trainer/device/memory_stats.h"

namespace equipoise {
namespace {

constexpr int64_t kWidth = 1000;  // no multiple of a block
constexpr int kSteps = 3;

struct Settings {
  int zero;
  at::ScalarType dtype;
  int64_t matrices;
};

// Elements of a layer, and of all.
struct Sizes {
  double trained = 0, frozen = 0, layers = 0, ranks = 0;
  double all() const { return trained + frozen; }
};

// Weights, gradients, remainders of masters in bf16, moments. From ZeRO 2 on two layers' gradients
// are whole, one that is made and one that is summed to a slice; in ZeRO 3 two layers' weights, one
// that runs and one that is gathered.
double Formula(const Settings& settings, const Sizes& sizes) {
  const double element = settings.dtype == at::kFloat ? 4 : 2, left = element == 4 ? 0 : 2;
  const auto shards = [&](int stage) { return settings.zero >= stage ? sizes.ranks : 1; };
  double bytes = element * sizes.all() / shards(3) + 4 * sizes.trained / shards(2) +
                 (left + 8) * sizes.trained / shards(1);
  if (settings.zero >= 2) bytes += 4 * sizes.trained / sizes.layers * (2 + 1 / sizes.ranks);
  if (settings.zero == 3) bytes += 2 * element * sizes.all() / sizes.layers;
  return bytes;
}

// A step with one micro-batch: gradients are summed once, weights gathered twice.
double TrafficFormula(const Settings& settings, const Sizes& sizes) {
  const double element = settings.dtype == at::kFloat ? 4 : 2;
  const double share = (sizes.ranks - 1) / sizes.ranks;
  return (settings.zero >= 2 ? 4 * sizes.trained * share : 0) +
         (settings.zero == 3 ? 2 * element * sizes.all() * share : 0);
}

using Layers = std::vector<std::vector<std::unique_ptr<Parameter>>>;

// A matrix and a bias for each of `matrices`, and frozen ones of a quarter of the size.
Layers MakeLayers(int64_t matrices) {
  Layers layers;
  for (int64_t i = 0; i < matrices; ++i) {
    std::vector<std::unique_ptr<Parameter>>& parameters = layers.emplace_back();
    const std::vector<std::vector<int64_t>> shapes = {
        {kWidth, kWidth}, {kWidth}, {kWidth / 4, kWidth}};
    for (size_t k = 0; k < shapes.size(); ++k) {
      parameters.push_back(std::make_unique<Parameter>());
      parameters.back()->name = std::to_string(i) + "." + std::to_string(k);
      parameters.back()->shape = shapes[k];
      parameters.back()->trainable = k < 2;
    }
  }
  return layers;
}

// The passes of a model whose layers make gradients of 0.5.
void Pass(ShardedUnits& units, FlatParameters& flat, bool backward) {
  std::vector<ShardedUnits::Use> uses;
  for (size_t i = 0; i < flat.num_units(); ++i) {
    ShardedUnits::Use& use = uses.emplace_back();
    if (flat.sharding().values()) use.values = {i};
    if (backward) use.sums = {i};
  }
  units.Begin(uses);
  for (size_t i = 0; i < flat.num_units(); ++i) {
    units.Acquire();
    if (backward) {
      units.ShowGradients(i);
      for (Parameter* parameter : flat.parameters()) {
        if (parameter->gradient.defined()) parameter->gradient.fill_(0.5);
      }
    }
    units.Release();
  }
  units.End();
}

struct Outcome {
  Sizes sizes;
  double moved = 0;  // in a step
};

Outcome Train(const Settings& settings, Communicator& world) {
  const Layers owned = MakeLayers(settings.matrices);
  std::vector<std::vector<Parameter*>> layers;
  Outcome outcome{
      {.layers = static_cast<double>(owned.size()), .ranks = static_cast<double>(world.size())}};
  for (const auto& layer : owned) {
    layers.emplace_back();
    for (const auto& parameter : layer) {
      layers.back().push_back(parameter.get());
      (parameter->trainable ? outcome.sizes.trained : outcome.sizes.frozen) +=
          static_cast<double>(parameter->numel());
    }
  }
  FlatParameters flat(layers, settings.dtype,
                      {ShardedStateOf(settings.zero), world.size(), world.rank()});
  const std::vector<Parameter*>& list = flat.parameters();
  const Shards shards = ZeroShards(ShardedStateOf(settings.zero), flat, world, 4 << 20);
  ZeroOptimizer optimizer(flat, DecayGroups(list, std::vector<double>(list.size(), 1.0), 0.1), {},
                          shards, {world, world});
  std::unique_ptr<GradientReducer> reducer;
  std::unique_ptr<ShardedUnits> units;
  if (flat.sharding().gradients()) {
    units = std::make_unique<ShardedUnits>(flat, world);
  } else {
    reducer = shards.ranks() > 1 ? std::make_unique<GradientReducer>(flat, world, shards)
                                 : std::make_unique<GradientReducer>(flat, world);
  }
  optimizer.TakeMasters();
  for (int step = 0; step < kSteps; ++step) {
    if (units) {
      flat.ZeroGradient();
      Pass(*units, flat, /*backward=*/false);
      Pass(*units, flat, /*backward=*/true);
      units->Finish();
    } else {
      flat.gradient().fill_(0.5);
      reducer->Finish();
    }
    const double norm = optimizer.GradientNorm();
    optimizer.Step(1e-3, ClipFactor(norm, 1.0));
  }
  if (units) {
    const ShardedUnits::Traffic traffic = units->traffic();
    outcome.moved = static_cast<double>(traffic.gathered + traffic.summed) / kSteps;
  }
  return outcome;
}

void Measure(const Settings& settings, Communicator& world) {
  const auto [sizes, moved] = Train(settings, world);
  at::Tensor mine = at::empty({1}, at::kLong), all = at::empty({world.size()}, at::kLong);
  mine.data_ptr<int64_t>()[0] = GetCpuMemory().peak_bytes;
  world.AllGather(all, mine).Wait();
  for (int rank = 0; rank < world.size() && world.rank() == 0; ++rank) {
    std::printf("%d %lld %.0f %.0f %.0f\n", rank,
                static_cast<long long>(all.data_ptr<int64_t>()[rank]), Formula(settings, sizes),
                moved, TrafficFormula(settings, sizes));
  }
}

int Run(const Settings& settings) {
  CountCpuMemory();
  MpiEnvironment mpi;
  Measure(settings, *MakeWorldCommunicator(mpi, CommOptions()));
  mpi.Close();
  return 0;
}

}  // namespace
}  // namespace equipoise

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: zero_bench 0|1|2|3 fp32|bf16 MILLIONS\n", stderr);
    return 2;
  }
  return equipoise::Run({std::atoi(argv[1]),
                         std::string(argv[2]) == "bf16" ? at::kBFloat16 : at::kFloat,
                         std::atoll(argv[3])});
}
