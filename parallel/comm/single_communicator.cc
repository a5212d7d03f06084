#include "parallel/comm/single_communicator.h"

#include <ATen/core/Tensor.h>

#include "configs/base/error.h"

namespace equipoise {
namespace {

Work Copy(at::Tensor& output, const at::Tensor& input) {
  EQUIPOISE_CHECK(output.numel() == input.numel() && output.scalar_type() == input.scalar_type(),
                  input.numel(), " elements into ", output.numel());
  if (output.data_ptr() != input.data_ptr()) output.view({-1}).copy_(input.view({-1}));
  return {};
}

}  // namespace

Work SingleCommunicator::AllReduce(at::Tensor&, ReduceOp) { return {}; }

Work SingleCommunicator::AllGather(at::Tensor& output, const at::Tensor& input) {
  return Copy(output, input);
}

Work SingleCommunicator::ReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp) {
  return Copy(output, input);
}

Work SingleCommunicator::Broadcast(at::Tensor&, int root) {
  EQUIPOISE_CHECK(root == 0, "root ", root, " of 1 rank");
  return {};
}

Work SingleCommunicator::Send(const at::Tensor&, int peer) {
  EQUIPOISE_CHECK(false, "send to rank ", peer, " of 1 rank");
  return {};
}

Work SingleCommunicator::Recv(at::Tensor&, int peer) {
  EQUIPOISE_CHECK(false, "recv from rank ", peer, " of 1 rank");
  return {};
}

std::unique_ptr<Communicator> SingleCommunicator::Split(int, int, const std::string& name) {
  return std::make_unique<SingleCommunicator>(name);
}

}  // namespace equipoise
