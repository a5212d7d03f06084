// What `profile` measures, on stand-ins of GPUs as on the CPU.
#include <ATen/Parallel.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>

#include "tests/device/device_cells.h"
#include "tests/device/gpu_stand_in.h"
#include "tests/device/staging_stand_in.h"
#include "tests/models/model_support.h"
#include "tests/parallel/run_ranks.h"
#include "trainer/device/gpu_probe.h"
#include "trainer/device/memory_stats.h"
#include "trainer/profile/profile_run.h"

namespace equipoise {
namespace {

const ProfileGrid kGrid{32, 2};

// The profile of two ranks, each with a GPU of its own, or on CPUs.
Profile MeasureOnTwo(bool gpus, Precision precision) {
  const testing::CellDevices devices =
      testing::StagedGpus(testing::kStandInGpus, testing::StagingStandIn);
  const auto same = [](std::unique_ptr<Communicator> world) { return world; };
  Profile measured;
  RunRanksOver(
      2, [&](auto world) { return gpus ? devices.wrap(std::move(world)) : same(std::move(world)); },
      [&](Communicator& world) {
        at::set_num_threads(1);
        const at::Device device = gpus ? devices.device(world.rank()) : at::kCPU;
        const MeasureOptions options{{"a device", "any", "fp32", 1}, precision, 1, device};
        const Profile profile = MeasureProfile(testing::TinyInternVl(false), kGrid, options, world);
        if (world.rank() == 0) measured = profile;
      });
  return measured;
}

TEST_CASE("a profile of GPUs has what one of CPUs has", "[device]") {
  CountCpuMemory();
  const Precision precision = GENERATE(Precision::kFp32, Precision::kBf16);
  const int64_t before = testing::CountsOfStandIn().operations;
  const Profile gpu = MeasureOnTwo(true, precision);
  CHECK(testing::CountsOfStandIn().operations > before);
  const Profile cpu = MeasureOnTwo(false, precision);
  REQUIRE(gpu.layers.size() == cpu.layers.size());
  for (size_t i = 0; i < gpu.layers.size(); ++i) {
    const LayerMeasurement &on_gpu = gpu.layers[i], &on_cpu = cpu.layers[i];
    INFO(on_gpu.layer_kind << " tensor " << on_gpu.tensor << " patches " << on_gpu.load.patches
                           << " tokens " << on_gpu.load.tokens);
    CHECK(on_gpu.layer_kind == on_cpu.layer_kind);
    CHECK(on_gpu.tensor == on_cpu.tensor);
    CHECK(on_gpu.forward_s > 0);
    CHECK(on_gpu.backward_s > 0);
    CHECK((on_gpu.input_gradient_s > 0) == (on_cpu.input_gradient_s > 0));
  }
  CHECK(gpu.optimizer_s_per_parameter > 0);
  CHECK(gpu.point_to_point.bytes_per_s > 0);
  CHECK(gpu.all_reduce.bytes_per_s > 0);
  CHECK(gpu.host_link_bytes_per_s > 0);
  CHECK(cpu.host_link_bytes_per_s == 0);
}

TEST_CASE("memory of a layer on a GPU is its tensors' there", "[device]") {
  constexpr int kVisionBlock = 1;
  const ModelConfig config = testing::TinyInternVl(false);
  const LayerMeasurement m =
      LayerMeter(config, kVisionBlock, at::kFloat, {}, at::Device(at::kCUDA, 0)).Measure({16, {}});
  const int64_t input = 16 * (config.vision.patches() + 1) * config.vision.hidden_size * 4;
  const auto kept = [&](Recompute recompute) {
    return m.kept_bytes[static_cast<size_t>(recompute)];
  };
  CHECK(kept(Recompute::kFull) >= input);
  CHECK(kept(Recompute::kFull) < input + 4096);
  for (const Recompute half : {Recompute::kAttention, Recompute::kMlp}) {
    CHECK(kept(half) > kept(Recompute::kFull) + input / 2);
    CHECK(kept(half) < kept(Recompute::kNone));
  }
  CHECK(m.work_bytes > input);
}

TEST_CASE("a GPU is probed within a second or so", "[device]") {
  const GpuSpeed speed = ProbeGpu({at::kCUDA, 0});
  CHECK((std::isfinite(speed.product_flops) && speed.product_flops > 0));
  CHECK((std::isfinite(speed.memory_bytes_per_s) && speed.memory_bytes_per_s > 0));
}

}  // namespace
}  // namespace equipoise
