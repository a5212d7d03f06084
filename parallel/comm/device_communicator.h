#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "parallel/comm/group_communicator.h"

namespace equipoise {

// The base of backends for GPU tensors; tensors on the CPU go to the group's CPU backend. Checks
// its arguments, so that a backend sees only valid tensors that are not empty.
class DeviceCommunicator : public Communicator {
 public:
  int rank() const override { return cpu_->rank(); }
  int size() const override { return cpu_->size(); }
  const std::string& name() const override { return cpu_->name(); }

  Work AllReduce(at::Tensor& tensor, ReduceOp op) final;
  Work AllGather(at::Tensor& output, const at::Tensor& input) final;
  Work ReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp op) final;
  Work Broadcast(at::Tensor& tensor, int root) final;
  Work Send(const at::Tensor& tensor, int peer) final;
  Work Recv(at::Tensor& tensor, int peer) final;
  void Announce(const std::string& compute) final { cpu_->Announce(compute); }
  void ProgressInBackground() final { cpu_->ProgressInBackground(); }
  std::unique_ptr<Communicator> Split(int color, int key, const std::string& name) final;

 protected:
  // `device`: the type of device whose tensors the backend takes; a test's stand-in takes the
  // CPU's.
  DeviceCommunicator(std::unique_ptr<GroupCommunicator> cpu, at::DeviceType device)
      : cpu_(std::move(cpu)), device_(device) {}

  GroupCommunicator& cpu() const { return *cpu_; }
  at::DeviceType device() const { return device_; }

 private:
  virtual Work DoAllReduce(at::Tensor& tensor, ReduceOp op) = 0;
  virtual Work DoAllGather(at::Tensor& output, const at::Tensor& input) = 0;
  virtual Work DoReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp op) = 0;
  virtual Work DoBroadcast(at::Tensor& tensor, int root) = 0;
  virtual Work DoSend(const at::Tensor& tensor, int peer) = 0;
  virtual Work DoRecv(at::Tensor& tensor, int peer) = 0;
  // This backend for a sub-group of more than one rank.
  virtual std::unique_ptr<Communicator> Wrap(std::unique_ptr<GroupCommunicator> part) = 0;

  bool Mine(const at::Tensor& tensor) const;

  std::unique_ptr<GroupCommunicator> cpu_;
  at::DeviceType device_;
};

}  // namespace equipoise
