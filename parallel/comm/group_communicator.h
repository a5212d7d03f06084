#pragma once

#include <map>
#include <memory>
#include <string>

#include "parallel/comm/collectives.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/engine.h"

namespace equipoise {

// A group of ranks that share an Engine's world: the communicator of every CPU backend.
class GroupCommunicator : public Communicator {
 public:
  // Groups of all ranks that need no agreement on a number: they have one of their own.
  enum class Everyone { kWorld, kClosing };
  GroupCommunicator(const std::shared_ptr<Engine>& engine, Everyone which);

  int rank() const override { return ranks_.self; }
  int size() const override { return ranks_.size(); }
  const std::string& name() const override { return name_; }
  // For backends of GPU tensors, which bring their operations to the same engine. `id` is the same
  // on all members, and differs between groups that have a member in common.
  const std::shared_ptr<Engine>& engine() const { return engine_; }
  const GroupRanks& ranks() const { return ranks_; }
  int id() const { return id_; }

  Work AllReduce(at::Tensor& tensor, ReduceOp op) override;
  Work AllGather(at::Tensor& output, const at::Tensor& input) override;
  Work ReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp op) override;
  Work Broadcast(at::Tensor& tensor, int root) override;
  Work Send(const at::Tensor& tensor, int peer) override;
  Work Recv(at::Tensor& tensor, int peer) override;
  void Announce(const std::string& compute) override { engine_->Announce(compute); }
  void ProgressInBackground() override { engine_->ProgressInBackground(); }
  std::unique_ptr<Communicator> Split(int color, int key, const std::string& name) override;

 private:
  GroupCommunicator(std::shared_ptr<Engine> engine, GroupRanks ranks, int id, std::string name);
  Work SubmitCollective(const char* kind, const at::Tensor& tensor, CollectiveSteps plan);
  Work SubmitMessage(const char* kind, int peer, int64_t sequence, const at::Tensor& tensor,
                     CollectiveSteps plan);

  std::shared_ptr<Engine> engine_;
  GroupRanks ranks_;
  int id_;
  std::string name_;
  int64_t collectives_ = 0;
  std::map<int, int64_t> sent_, received_;  // messages so far, by peer
};

}  // namespace equipoise
