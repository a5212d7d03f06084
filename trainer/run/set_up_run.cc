#include "trainer/run/set_up_run.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <utility>

#include "configs/base/error.h"
#include "configs/yaml/config_json.h"
#include "parallel/comm/gather_text.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi_environment.h"
#include "parallel/comm/values.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/common/program_hash.h"
#include "trainer/device/bf16_units.h"
#include "trainer/device/compute_device.h"
#include "trainer/device/compute_dtype.h"
#include "trainer/device/gpu_probe.h"
#include "trainer/device/open_kernels.h"
#include "trainer/device/this_gpu.h"
#include "trainer/settings/fp8.h"
#include "trainer/settings/loss_scaler.h"
#include "trainer/settings/run_cluster.h"

namespace equipoise {
namespace {

std::vector<int> GatherMachines(Communicator& world, int machine) {
  std::vector<int> machines;
  machines.reserve(static_cast<size_t>(world.size()));
  for (const std::vector<int64_t>& rank : GatherValues(world, std::vector<int64_t>{machine})) {
    machines.push_back(static_cast<int>(rank.front()));
  }
  return machines;
}

// As few threads as the rank of this machine that has the fewest, where ranks are bound to unequal
// numbers of processors: sums of tensor ranks, which hold the same, are those of their threads'
// parts. Collective.
void UseThreadsOf(const std::vector<int>& machines, Communicator& world) {
  const int64_t mine = at::get_num_threads();
  const auto threads = GatherValues(world, std::vector<int64_t>{mine});
  int64_t fewest = mine;
  for (size_t rank = 0; rank < machines.size(); ++rank) {
    if (machines[rank] == machines[static_cast<size_t>(world.rank())])
      fewest = std::min(fewest, threads[rank].front());
  }
  if (fewest < mine) at::set_num_threads(static_cast<int>(fewest));
}

// UseGpu() for the GPU of this rank, which must be the same on every rank: with different GPUs,
// ranks would make different plans. Of one kind, some may have a little less memory. Collective.
void UseGpuOf(at::Device device, const MpiEnvironment& mpi, Communicator& world, int ranks_per_gpu,
              int64_t machine_bytes, RunConfig& config) {
  auto gpu = ThisGpu(config.train.device, device.index());
  const auto memory = AllReduceValue<int64_t>(
      world, gpu ? gpu->memory_bytes : std::numeric_limits<int64_t>::max(), ReduceOp::kMin);
  std::string line;
  if (gpu) {
    gpu->memory_bytes = memory;
    gpu->machine_bytes = machine_bytes;
    gpu->ranks = ranks_per_gpu;
    gpu->on_machine = std::max(gpu->on_machine, mpi.local_size());  // a rank may see only its own
    line = UseGpu(*gpu, config.cluster);
  }
  RequireEqual(world, "the GPU", line);
  if (!line.empty()) spdlog::info("{}", line);
}

// Measures the speed of a GPU that no preset knows: the slowest rank's, the same on every rank.
void ProbeUnknownGpu(at::Device device, Communicator& world, ClusterConfig& cluster) {
  if (cluster.preset != kLocalPreset || cluster.peak_tflops || !cluster.profile.empty()) return;
  const GpuSpeed mine = ProbeGpu(device);
  const std::vector<double> least = AllReduceValues(
      world, std::vector<double>{mine.product_flops, mine.memory_bytes_per_s}, ReduceOp::kMin);
  cluster.peak_tflops = least[0] / 1e12;
  cluster.hbm_gb_s = least[1] / 1e9;
  cluster.gemm_efficiency = cluster.memory_efficiency = 1;
  spdlog::info("cluster: a short probe of the GPU reached {:.1f} TFLOP/s and {:.0f} GB/s",
               *cluster.peak_tflops, *cluster.hbm_gb_s);
}

// The cluster may be another than this machine, by cluster.preset.
void RequireFp8Units(at::Device device, Communicator& world) {
  const bool mine = device.is_cuda() && GpuIsHopperOrLater(device.index());
  const std::vector<std::string> lacking = GatherText(world, mine ? "" : DeviceName(device));
  for (size_t rank = 0; rank < lacking.size(); ++rank) {
    if (lacking[rank].empty()) continue;
    throw ConfigError(fmt::format(
        "train.fp8: true needs GPUs with fp8 units, of compute capability 9.0 or later, and rank "
        "{} computes on {}; leave it out",
        rank, lacking[rank]));
  }
}

std::string HostName() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return host.data();
}

}  // namespace

RunSetup SetUpRun(RunConfig& config, MpiEnvironment& mpi) {
  CheckLossScale(config.train.loss_scale);
  const at::Device device = OpenComputeDevice(config.train.device, mpi);
  SetUpCompute(config.train, mpi.processors());
  std::unique_ptr<Communicator> world = MakeWorldCommunicator(mpi, CommOptionsOf(config.parallel));
  RequireEqual(*world, "the program", ProgramHash());
  RequireEqual(*world, "the configuration", ConfigToJson(config));
  std::vector<int> machines = GatherMachines(*world, mpi.machine());
  DeviceWorld devices = WorldForDevice(std::move(world), mpi, device, config.parallel.nccl);
  world = std::move(devices.world);
  OpenKernels(config.train.kernels, device, *world);
  ChooseAttention(AttentionOn(device, config.train.attention, config.train.deterministic));
  const auto least = AllReduceValue<int64_t>(*world, MachineMemoryBytes(), ReduceOp::kMin);
  if (device.is_cuda()) {  // all ranks, or none
    UseGpuOf(device, mpi, *world, devices.ranks_per_gpu, least, config);
    ProbeUnknownGpu(device, *world, config.cluster);
  }
  UseMachines(machines, least, config.cluster);
  if (config.train.threads == 0) UseThreadsOf(machines, *world);
  // `auto` depends on the kind of processor.
  const Precision precision = PrecisionOn(device, config.train.precision);
  RequireEqual(*world, "train.precision", ToString(precision));
  CheckMaster(config.train.master, precision);
  CheckFp8(config, precision);
  if (config.train.fp8) RequireFp8Units(device, *world);
  std::vector<std::string> hosts = GatherText(*world, HostName());
  spdlog::info("{} rank{} on {}, {}, {} thread{} each, {:g} s for a wait at most{}", world->size(),
               world->size() == 1 ? "" : "s", DeviceKind(device), ToString(precision),
               at::get_num_threads(), at::get_num_threads() == 1 ? "" : "s",
               config.parallel.timeout_s, config.train.deterministic ? ", deterministic" : "");
  return {device,           precision,
          std::move(world), std::move(machines),
          std::move(hosts), devices.ranks_per_gpu};
}

void SetUpCompute(const TrainSection& train, int64_t processors) {
  at::set_num_threads(static_cast<int>(train.threads > 0 ? train.threads : processors));
  at::globalContext().setDeterministicAlgorithms(train.deterministic, /*warn_only=*/false);
  // Filling new tensors is slow and not needed, as every op writes its whole output.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

CommOptions CommOptionsOf(const ParallelSection& parallel) {
  CommOptions options;
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(parallel.timeout_s * 1000));
  return options;
}

ParallelModel::Options ModelOptionsOf(const RunConfig& config, const RunSetup& setup) {
  ParallelModel::Options options;
  options.part.dtype = DtypeOf(setup.precision);
  options.part.device = setup.device;
  options.part.freeze = config.model.freeze;
  options.part.fp8 = config.train.fp8;
  options.part.encoder_stream = config.parallel.encoder_stream;
  options.bucket_bytes = config.parallel.bucket_bytes;
  return options;
}

void RequireEqual(Communicator& world, const std::string& what, const Json& value) {
  const std::vector<std::string> all = GatherText(world, value.dump());
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw ConfigError(fmt::format(
        "{} of rank {} differs from that of rank 0 ({}); give every rank the same "
        "configuration, data and program",
        what, rank, EnvironmentDifference(Json::parse(all[0]), Json::parse(all[rank]))));
  }
}

}  // namespace equipoise
