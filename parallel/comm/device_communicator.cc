#include "parallel/comm/device_communicator.h"

#include <utility>

#include "configs/base/error.h"
#include "parallel/comm/reduce.h"
#include "parallel/comm/single_communicator.h"

namespace equipoise {
namespace {

void CheckPair(const at::Tensor& whole, const at::Tensor& part, int ranks) {
  EQUIPOISE_CHECK(
      part.defined() && part.is_contiguous() && whole.scalar_type() == part.scalar_type() &&
          whole.device() == part.device() && whole.numel() == ranks * part.numel(),
      part.numel(), " elements on each of ", ranks, " ranks and ", whole.numel(), " of all");
}

void CheckReducible(const at::Tensor& tensor) {
  EQUIPOISE_CHECK(CanReduce(tensor.scalar_type()), "cannot reduce tensors of type ",
                  c10::toString(tensor.scalar_type()));
}

}  // namespace

bool DeviceCommunicator::Mine(const at::Tensor& tensor) const {
  EQUIPOISE_CHECK(tensor.defined() && tensor.is_contiguous(),
                  "communication needs contiguous tensors");
  return tensor.device().type() == device_;
}

Work DeviceCommunicator::AllReduce(at::Tensor& tensor, ReduceOp op) {
  if (!Mine(tensor)) return cpu_->AllReduce(tensor, op);
  CheckReducible(tensor);
  return tensor.numel() == 0 ? Work() : DoAllReduce(tensor, op);
}

Work DeviceCommunicator::AllGather(at::Tensor& output, const at::Tensor& input) {
  if (!Mine(output)) return cpu_->AllGather(output, input);
  CheckPair(output, input, size());
  return input.numel() == 0 ? Work() : DoAllGather(output, input);
}

Work DeviceCommunicator::ReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  if (!Mine(input)) return cpu_->ReduceScatter(output, input, op);
  CheckReducible(input);
  CheckPair(input, output, size());
  return output.numel() == 0 ? Work() : DoReduceScatter(output, input, op);
}

Work DeviceCommunicator::Broadcast(at::Tensor& tensor, int root) {
  if (!Mine(tensor)) return cpu_->Broadcast(tensor, root);
  EQUIPOISE_CHECK(root >= 0 && root < size(), "root ", root, " of ", size(), " ranks");
  return tensor.numel() == 0 ? Work() : DoBroadcast(tensor, root);
}

Work DeviceCommunicator::Send(const at::Tensor& tensor, int peer) {
  if (!Mine(tensor)) return cpu_->Send(tensor, peer);
  EQUIPOISE_CHECK(peer >= 0 && peer < size() && peer != rank(), "peer ", peer, " of rank ", rank());
  return tensor.numel() == 0 ? Work() : DoSend(tensor, peer);
}

Work DeviceCommunicator::Recv(at::Tensor& tensor, int peer) {
  if (!Mine(tensor)) return cpu_->Recv(tensor, peer);
  EQUIPOISE_CHECK(peer >= 0 && peer < size() && peer != rank(), "peer ", peer, " of rank ", rank());
  return tensor.numel() == 0 ? Work() : DoRecv(tensor, peer);
}

std::unique_ptr<Communicator> DeviceCommunicator::Split(int color, int key,
                                                        const std::string& name) {
  std::unique_ptr<GroupCommunicator> part = cpu_->SplitGroup(color, key, name);
  if (part == nullptr) return std::make_unique<SingleCommunicator>(name);  // nothing leaves the GPU
  return Wrap(std::move(part));
}

}  // namespace equipoise
