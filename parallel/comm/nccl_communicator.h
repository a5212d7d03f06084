#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "parallel/comm/device_communicator.h"
#include "parallel/comm/nccl_link.h"
#include "parallel/comm/transfer_group.h"

namespace equipoise {

// The NCCL backend, for tensors on GPUs. It is set up over the group's CPU backend, whose engine
// watches the GPU's operations, so that deadlines, failure reports and messages are those of every
// backend.
//
// Collectives of a group have one communicator and stream; transfers have one for each direction of
// each pair given to Connect(), so that a receive posted early never blocks a send.
//
// Sums are rounded at every hop of NCCL's ring: in bf16 within 4 ulp on 8 ranks. NCCL may drop a
// NaN in a maximum or minimum, so these all-gather and reduce locally.
class NcclCommunicator : public DeviceCommunicator, public JoinsTransfers {
 public:
  // Collective. Throws RunError.
  NcclCommunicator(std::unique_ptr<GroupCommunicator> cpu, std::shared_ptr<const NcclApi> api,
                   at::DeviceType device);

  // Closes its links in one order on all ranks; leaves them open while an exception unwinds.
  ~NcclCommunicator() override;

  void Connect(const std::vector<std::pair<int, int>>& pairs) override;
  void BeginTransfers() override { joining_ = true; }
  void EndTransfers() noexcept override;

 private:
  // A connection to a peer, or from it.
  struct Direction {
    std::shared_ptr<NcclLink> link;
    int64_t messages = 0;
  };

  Work DoAllReduce(at::Tensor& tensor, ReduceOp op) override;
  Work DoAllGather(at::Tensor& output, const at::Tensor& input) override;
  Work DoReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp op) override;
  Work DoBroadcast(at::Tensor& tensor, int root) override;
  Work DoSend(const at::Tensor& tensor, int peer) override;
  Work DoRecv(at::Tensor& tensor, int peer) override;
  std::unique_ptr<Communicator> Wrap(std::unique_ptr<GroupCommunicator> part) override;

  using Run = decltype(NcclCall::run);
  Work Collective(const char* kind, std::vector<at::Tensor> tensors, Run run,
                  std::function<void()> finish = {});
  Work Message(const char* kind, int peer, Direction& direction, const at::Tensor& tensor, Run run);
  Work Extreme(at::Tensor& output, const at::Tensor& input, ReduceOp op);
  CollectiveSteps Plan(std::vector<at::Tensor> tensors, std::vector<int> awaited) const;
  // Of a call that makes or ends a link to the ranks `others` of the world.
  CollectiveSteps LinkPlan(const char* call, std::vector<int> others) const;
  // A link to the ranks `others` of the world, of `ranks` ranks, this one `self`. Throws RunError.
  std::shared_ptr<NcclLink> Join(std::vector<int> others, const NcclUniqueId& id, int ranks,
                                 int self);
  void ConnectPair(int peer);
  void WarmUp(const std::vector<int>& peers);

  std::shared_ptr<const NcclApi> api_;
  std::shared_ptr<NcclLink> collectives_;
  int64_t sequence_ = 0;
  std::map<int, Direction> to_, from_;  // by rank of the peer in this group
  bool joining_ = false;
  NcclBatch joined_;
};

}  // namespace equipoise
