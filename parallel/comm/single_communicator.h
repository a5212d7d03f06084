#pragma once

#include <memory>
#include <string>
#include <utility>

#include "parallel/comm/communicator.h"

namespace equipoise {

// A group of one rank. Operations copy input to output, if these differ, and are done at once.
class SingleCommunicator : public Communicator {
 public:
  explicit SingleCommunicator(std::string name = "world") : name_(std::move(name)) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& name() const override { return name_; }

  Work AllReduce(at::Tensor& tensor, ReduceOp op) override;
  Work AllGather(at::Tensor& output, const at::Tensor& input) override;
  Work ReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp op) override;
  Work Broadcast(at::Tensor& tensor, int root) override;
  // Calling these is a bug: there is no other rank.
  Work Send(const at::Tensor& tensor, int peer) override;
  Work Recv(at::Tensor& tensor, int peer) override;
  std::unique_ptr<Communicator> Split(int color, int key, const std::string& name) override;

 private:
  std::string name_;
};

}  // namespace equipoise
