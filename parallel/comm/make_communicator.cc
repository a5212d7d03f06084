#include "parallel/comm/make_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "parallel/comm/gather_text.h"
#include "parallel/comm/group_communicator.h"
#include "parallel/comm/nccl_communicator.h"
#include "parallel/comm/single_communicator.h"
#include "parallel/comm/staged_communicator.h"
#include "parallel/comm/values.h"
#include "parallel/streams.h"

namespace equipoise {
namespace {

constexpr int kSharedGpuVersion = 23000;  // from 2.30 on NCCL can let ranks share a GPU
constexpr int kOrderedVersion = 22600;    // before 2.26 it ignores NCCL_LAUNCH_ORDER_IMPLICIT

std::string VersionName(int version) {
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void RequireDevices(const CudaApi& cuda) {
  int count = 0;
  const int error = cuda.device_count(&count);
  if (error != 0 || count == 0) {
    throw ConfigError(fmt::format(
        "parallel.nccl: this machine has no usable GPU ({}); leave the key out to train "
        "on CPUs",
        error != 0 ? cuda.error_text(error) : "none found"));
  }
}

}  // namespace

std::unique_ptr<Communicator> MakeWorldCommunicator(MpiEnvironment& environment,
                                                    const CommOptions& options) {
  if (environment.size() == 1) return std::make_unique<SingleCommunicator>();
  return std::make_unique<GroupCommunicator>(environment.Connect(options),
                                             GroupCommunicator::Everyone::kWorld);
}

int MostRanksPerGpu(Communicator& world, const CudaApi& cuda, int machine) {
  std::array<char, 32> id{};
  cuda.Check(cuda.device_id(id.data(), static_cast<int>(id.size()), cuda.device),
             "cudaDeviceGetPCIBusId");
  std::map<std::string, int> ranks;
  int most = 0;
  for (const std::string& gpu : GatherText(world, fmt::format("{} {}", machine, id.data())))
    most = std::max(most, ++ranks[gpu]);
  return most;
}

void RequireLaunchOrder(int version) {
  if (version >= kOrderedVersion) return;
  throw ConfigError(fmt::format(
      "parallel.nccl: found {}; ranks use several communicators of a GPU, whose order it keeps "
      "from {} on; give the path of a newer library, or leave the key out for LibTorch's own",
      VersionName(version), VersionName(kOrderedVersion)));
}

DeviceWorld AddDevices(MpiEnvironment& environment, std::unique_ptr<Communicator> world,
                       const std::string& nccl_library, int gpu) {
  auto api = std::make_shared<NcclApi>(LoadNcclApi(nccl_library));
  int version = 0;
  api->Check(api->version(&version), "ncclGetVersion");
  RequireDevices(api->cuda);
  DeviceWorld result;
  api->cuda.device = gpu;
  api->cuda.current_stream = [] { return ComputeStreamHandle(at::kCUDA); };
  result.backend = VersionName(version);
  if (environment.size() == 1) {  // nothing leaves the GPU
    result.world = std::move(world);
    return result;
  }
  // Where ranks share a GPU, all ranks stage.
  const bool nccl_shares = version >= kSharedGpuVersion && MpiEnvironment::NcclSharesGpus();
  result.ranks_per_gpu = MostRanksPerGpu(*world, api->cuda, environment.machine());
  const bool stages = AnyRank(*world, result.ranks_per_gpu > 1 && !nccl_shares);
  auto cpu = std::make_unique<GroupCommunicator>(environment.engine(),
                                                 GroupCommunicator::Everyone::kWorld);
  if (!stages) {
    RequireLaunchOrder(version);
    result.world = std::make_unique<NcclCommunicator>(std::move(cpu), std::move(api), at::kCUDA);
  } else {
    result.backend = "pinned staging";
    auto cuda = std::make_shared<const CudaApi>(api->cuda);
    result.world = std::make_unique<StagedCommunicator>(std::move(cpu), std::move(cuda), at::kCUDA);
  }
  return result;
}

}  // namespace equipoise
