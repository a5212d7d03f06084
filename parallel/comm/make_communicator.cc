#include "parallel/comm/make_communicator.h"

#include <fmt/format.h>

#include <utility>

#include "configs/base/error.h"
#include "parallel/comm/group_communicator.h"
#include "parallel/comm/nccl_communicator.h"
#include "parallel/comm/single_communicator.h"
#include "parallel/comm/staged_communicator.h"
#include "parallel/comm/values.h"

namespace equipoise {
namespace {

constexpr int kSharedGpuVersion = 23000;  // from 2.30 on NCCL can let ranks share a GPU

std::string VersionName(int version) {
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

int CountDevices(const CudaApi& cuda) {
  int count = 0;
  const int error = cuda.device_count(&count);
  if (error != 0 || count == 0) {
    throw ConfigError(fmt::format(
        "parallel.nccl: this machine has no usable GPU ({}); leave the key out to train "
        "on CPUs",
        error != 0 ? cuda.error_text(error) : "none found"));
  }
  return count;
}

}  // namespace

std::unique_ptr<Communicator> MakeWorldCommunicator(MpiEnvironment& environment,
                                                    const CommOptions& options) {
  if (environment.size() == 1) return std::make_unique<SingleCommunicator>();
  return std::make_unique<GroupCommunicator>(environment.Connect(options),
                                             GroupCommunicator::Everyone::kWorld);
}

DeviceWorld AddDevices(MpiEnvironment& environment, std::unique_ptr<Communicator> world,
                       const std::string& nccl_library, int gpu) {
  auto api = std::make_shared<NcclApi>(LoadNcclApi(nccl_library));
  int version = 0;
  api->Check(api->version(&version), "ncclGetVersion", nullptr);
  const int devices = CountDevices(api->cuda);
  DeviceWorld result;
  api->cuda.device = gpu;
  result.backend = VersionName(version);
  if (environment.size() == 1) {  // nothing leaves the GPU
    result.world = std::move(world);
    return result;
  }
  // Where the ranks of one machine share a GPU, all ranks stage.
  const bool nccl_shares = version >= kSharedGpuVersion && MpiEnvironment::NcclSharesGpus();
  const bool shares = environment.local_size() > devices && !nccl_shares;
  const bool any_shares = AnyRank(*world, shares);
  auto cpu = std::make_unique<GroupCommunicator>(environment.engine(),
                                                 GroupCommunicator::Everyone::kWorld);
  if (!any_shares) {
    result.world = std::make_unique<NcclCommunicator>(std::move(cpu), std::move(api), at::kCUDA);
  } else {
    result.backend = "pinned staging";
    auto cuda = std::make_shared<const CudaApi>(api->cuda);
    result.world = std::make_unique<StagedCommunicator>(std::move(cpu), std::move(cuda), at::kCUDA);
  }
  return result;
}

}  // namespace equipoise
