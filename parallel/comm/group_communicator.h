#pragma once

#include <map>
#include <memory>
#include <string>

#include "parallel/comm/collectives.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/engine.h"

namespace equipoise {

// The communicator of every CPU backend: a group of ranks that share an Engine's world.
class GroupCommunicator : public Communicator {
 public:
  // Groups of all ranks, with fixed numbers on which no agreement is needed.
  enum class Everyone { kWorld, kClosing };
  GroupCommunicator(const std::shared_ptr<Engine>& engine, Everyone which);

  int rank() const override { return ranks_.self; }
  int size() const override { return ranks_.size(); }
  const std::string& name() const override { return name_; }
  // For backends of GPU tensors, which submit their operations to the same engine. `id` is equal on
  // all members, and differs between groups that have a member in common.
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
  // Split() for backends of GPU tensors; null where this rank is the only member.
  std::unique_ptr<GroupCommunicator> SplitGroup(int color, int key, const std::string& name);

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
  std::map<int, int64_t> sent_, received_;  // number of messages so far, by peer
};

}  // namespace equipoise
