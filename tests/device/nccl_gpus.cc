#include "tests/device/nccl_gpus.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>
#include <utility>

#include "configs/base/error.h"
#include "parallel/comm/group_communicator.h"
#include "parallel/comm/nccl_communicator.h"
#include "parallel/streams.h"
#include "tests/device/gpu_stand_in.h"

namespace equipoise::testing {
namespace {

at::Device Gpu(int rank) { return {at::kCUDA, static_cast<c10::DeviceIndex>(rank)}; }

}  // namespace

NcclApi ForGpuMemory(NcclApi api) {
  const auto reduction = [](auto call) {
    return [call](const void* in, void* out, size_t n, int type, int op, void* comm, void* stream) {
      return call(HostAddress(in), HostAddress(out), n, type, op, comm, stream);
    };
  };
  api.all_reduce = reduction(api.all_reduce);
  api.reduce_scatter = reduction(api.reduce_scatter);
  api.broadcast = reduction(api.broadcast);
  api.all_gather = [call = api.all_gather](const void* in, void* out, size_t n, int type,
                                           void* comm, void* stream) {
    return call(HostAddress(in), HostAddress(out), n, type, comm, stream);
  };
  api.send = [call = api.send](const void* in, size_t n, int type, int peer, void* comm,
                               void* stream) {
    return call(HostAddress(in), n, type, peer, comm, stream);
  };
  api.receive = [call = api.receive](void* out, size_t n, int type, int peer, void* comm,
                                     void* stream) {
    return call(HostAddress(out), n, type, peer, comm, stream);
  };
  return api;
}

NcclGpus::NcclGpus(int ranks, OrderChecker* checker, NcclStandIn::Queues queues)
    : stand_in_(ranks, queues), checker_(checker) {
  EQUIPOISE_CHECK(ranks <= kStandInGpus, ranks, " ranks");
}

CellDevices NcclGpus::devices() {
  CellDevices devices;
  devices.device = Gpu;
  devices.wrap = [this](std::unique_ptr<Communicator> world) -> std::unique_ptr<Communicator> {
    const int rank = world->rank();
    c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(Gpu(rank));
    if (world->size() == 1) return world;
    NcclApi api = ForGpuMemory(stand_in_.Api(rank));
    api.cuda.current_stream = [] { return ComputeStreamHandle(at::kCUDA); };
    if (checker_ != nullptr) api = checker_->Watched(std::move(api), rank);
    std::unique_ptr<GroupCommunicator> cpu(&dynamic_cast<GroupCommunicator&>(*world.release()));
    std::unique_ptr<Communicator> nccl = std::make_unique<NcclCommunicator>(
        std::move(cpu), std::make_shared<const NcclApi>(std::move(api)), at::kCUDA);
    return checker_ != nullptr ? checker_->Watched(std::move(nccl), rank) : std::move(nccl);
  };
  return devices;
}

}  // namespace equipoise::testing
