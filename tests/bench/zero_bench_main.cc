// Peak memory of weights, gradients and optimizer state of one rank, beside the formula:
//   mpirun -n RANKS zero_bench ZERO fp32|bf16 MILLIONS
// of trainable parameters; a quarter as many are frozen. Rank 0 prints one line a rank: its number,
// peak bytes in LibTorch's tensors, bytes by the formula.
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

double Formula(const Settings& settings, double trained, double frozen, double ranks) {
  const bool fp32 = settings.dtype == at::kFloat;
  const double shards = settings.zero == 0 ? 1 : ranks;
  const double moments = 8 * trained / shards;
  if (fp32) return 4 * (trained + frozen) + 4 * trained + moments;
  return 2 * (trained + frozen) + 2 * trained / shards + 4 * trained + moments;
}

// A matrix and a bias for each of `matrices`, and frozen ones of a quarter of the size.
std::vector<std::unique_ptr<Parameter>> MakeParameters(int64_t matrices) {
  std::vector<std::unique_ptr<Parameter>> parameters;
  for (int64_t i = 0; i < matrices; ++i) {
    const std::vector<std::vector<int64_t>> shapes = {
        {kWidth, kWidth}, {kWidth}, {kWidth / 4, kWidth}};
    for (size_t k = 0; k < shapes.size(); ++k) {
      parameters.push_back(std::make_unique<Parameter>());
      parameters.back()->name = std::to_string(i) + "." + std::to_string(k);
      parameters.back()->shape = shapes[k];
      parameters.back()->trainable = k < 2;
    }
  }
  return parameters;
}

double Train(const Settings& settings, Communicator& world) {
  const auto owned = MakeParameters(settings.matrices);
  std::vector<Parameter*> list;
  double trained = 0, frozen = 0;
  for (const auto& parameter : owned) {
    list.push_back(parameter.get());
    (parameter->trainable ? trained : frozen) += static_cast<double>(parameter->numel());
  }
  FlatParameters flat(list, settings.dtype, settings.zero == 0 ? 1 : world.size());
  const Shards shards = ZeroShards(ShardedStateOf(settings.zero), flat, world, 4 << 20);
  ZeroOptimizer optimizer(flat, DecayGroups(list, std::vector<double>(list.size(), 1.0), 0.1), {},
                          shards, {world, world});
  std::unique_ptr<GradientReducer> reducer =
      shards.ranks() > 1 ? std::make_unique<GradientReducer>(flat, world, shards)
                         : std::make_unique<GradientReducer>(flat, world);
  optimizer.TakeMasters();
  for (int step = 0; step < kSteps; ++step) {
    flat.gradient().fill_(0.5);
    reducer->Finish();
    optimizer.ScaleGradients(ClipFactor(optimizer.GradientNorm(), 1.0));
    optimizer.Step(1e-3);
  }
  return Formula(settings, trained, frozen, world.size());
}

void Measure(const Settings& settings, Communicator& world) {
  const double formula = Train(settings, world);
  at::Tensor mine = at::empty({1}, at::kLong), all = at::empty({world.size()}, at::kLong);
  mine.data_ptr<int64_t>()[0] = GetCpuMemory().peak_bytes;
  world.AllGather(all, mine).Wait();
  for (int rank = 0; rank < world.size() && world.rank() == 0; ++rank) {
    std::printf("%d %lld %.0f\n", rank, static_cast<long long>(all.data_ptr<int64_t>()[rank]),
                formula);
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
    std::fputs("usage: zero_bench 0|1 fp32|bf16 MILLIONS\n", stderr);
    return 2;
  }
  return equipoise::Run({std::atoi(argv[1]),
                         std::string(argv[2]) == "bf16" ? at::kBFloat16 : at::kFloat,
                         std::atoll(argv[3])});
}
