#pragma once

#include <memory>

#include "parallel/comm/device_communicator.h"
#include "parallel/comm/nccl_api.h"

namespace equipoise {

// The backend of ranks that share a GPU, which NCCL refuses: tensors are staged through pinned
// memory and the group's CPU backend, with the bits of its sums. An operation waits on the host
// until the compute stream has produced its input; the result is copied back in Wait().
class StagedCommunicator : public DeviceCommunicator {
 public:
  StagedCommunicator(std::unique_ptr<GroupCommunicator> cpu, std::shared_ptr<const CudaApi> api,
                     at::DeviceType device);

 private:
  class Pool;  // pinned buffers: allocating one takes longer than a copy
  StagedCommunicator(std::unique_ptr<GroupCommunicator> cpu, std::shared_ptr<Pool> pool,
                     at::DeviceType device);

  Work DoAllReduce(at::Tensor& tensor, ReduceOp op) override;
  Work DoAllGather(at::Tensor& output, const at::Tensor& input) override;
  Work DoReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp op) override;
  Work DoBroadcast(at::Tensor& tensor, int root) override;
  Work DoSend(const at::Tensor& tensor, int peer) override;
  Work DoRecv(at::Tensor& tensor, int peer) override;
  std::unique_ptr<Communicator> Wrap(std::unique_ptr<GroupCommunicator> part) override;

  at::Tensor ToHost(const at::Tensor& tensor) const;
  // An operation on `host`, followed by a copy of its result to `tensor`.
  Work Back(Work work, at::Tensor tensor, at::Tensor host) const;

  std::shared_ptr<Pool> pool_;
};

}  // namespace equipoise
