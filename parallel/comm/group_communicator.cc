#include "parallel/comm/group_communicator.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "parallel/comm/operation_text.h"
#include "parallel/comm/reduce.h"
#include "parallel/comm/single_communicator.h"

namespace equipoise {
namespace {

void CheckTensor(const at::Tensor& tensor) {
  EQUIPOISE_CHECK(tensor.defined() && tensor.is_cpu() && tensor.is_contiguous(),
                  "communication needs contiguous CPU tensors");
}

void CheckReducible(const at::Tensor& tensor) {
  CheckTensor(tensor);
  EQUIPOISE_CHECK(CanReduce(tensor.scalar_type()), "cannot reduce tensors of type ",
                  c10::toString(tensor.scalar_type()));
}

GroupRanks AllRanks(const Engine& engine) {
  GroupRanks ranks;
  ranks.world.resize(engine.size());
  std::iota(ranks.world.begin(), ranks.world.end(), 0);
  ranks.self = engine.rank();
  return ranks;
}

}  // namespace

GroupCommunicator::GroupCommunicator(const std::shared_ptr<Engine>& engine, Everyone which)
    : GroupCommunicator(engine, AllRanks(*engine), static_cast<int>(which),
                        which == Everyone::kWorld ? "world" : "end of run") {}

GroupCommunicator::GroupCommunicator(std::shared_ptr<Engine> engine, GroupRanks ranks, int id,
                                     std::string name)
    : engine_(std::move(engine)), ranks_(std::move(ranks)), id_(id), name_(std::move(name)) {}

Work GroupCommunicator::SubmitCollective(const char* kind, const at::Tensor& tensor,
                                         CollectiveSteps plan) {
  plan.tag = {id_, /*point_to_point=*/false, ++collectives_};
  plan.text = CollectiveText(kind, collectives_, name_, tensor.nbytes());
  return Work(engine_->Submit(std::move(plan)));
}

Work GroupCommunicator::SubmitMessage(const char* kind, int peer, int64_t sequence,
                                      const at::Tensor& tensor, CollectiveSteps plan) {
  plan.tag = {id_, /*point_to_point=*/true, sequence};
  plan.text = MessageText({kind, ranks_.world[peer], sequence}, name_, tensor.nbytes());
  return Work(engine_->Submit(std::move(plan)));
}

Work GroupCommunicator::AllReduce(at::Tensor& tensor, ReduceOp op) {
  CheckReducible(tensor);
  if (tensor.numel() == 0) return {};
  return SubmitCollective("all_reduce", tensor, AllReduceSteps(ranks_, tensor, op));
}

Work GroupCommunicator::AllGather(at::Tensor& output, const at::Tensor& input) {
  CheckTensor(output);
  CheckTensor(input);
  EQUIPOISE_CHECK(
      output.scalar_type() == input.scalar_type() && output.numel() == size() * input.numel(),
      "all_gather of ", input.numel(), " elements into ", output.numel());
  if (input.numel() == 0) return {};
  return SubmitCollective("all_gather", output, AllGatherSteps(ranks_, output, input));
}

Work GroupCommunicator::ReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  CheckReducible(input);
  CheckTensor(output);
  EQUIPOISE_CHECK(
      output.scalar_type() == input.scalar_type() && input.numel() == size() * output.numel(),
      "reduce_scatter of ", input.numel(), " elements into ", output.numel());
  if (output.numel() == 0) return {};
  return SubmitCollective("reduce_scatter", input, ReduceScatterSteps(ranks_, output, input, op));
}

Work GroupCommunicator::Broadcast(at::Tensor& tensor, int root) {
  CheckTensor(tensor);
  EQUIPOISE_CHECK(root >= 0 && root < size(), "root ", root, " of ", size(), " ranks");
  if (tensor.numel() == 0) return {};
  return SubmitCollective("broadcast", tensor, BroadcastSteps(ranks_, tensor, root));
}

Work GroupCommunicator::Send(const at::Tensor& tensor, int peer) {
  CheckTensor(tensor);
  EQUIPOISE_CHECK(peer >= 0 && peer < size() && peer != rank(), "peer ", peer, " of rank ", rank());
  return SubmitMessage("send to", peer, ++sent_[peer], tensor, SendSteps(ranks_, tensor, peer));
}

Work GroupCommunicator::Recv(at::Tensor& tensor, int peer) {
  CheckTensor(tensor);
  EQUIPOISE_CHECK(peer >= 0 && peer < size() && peer != rank(), "peer ", peer, " of rank ", rank());
  return SubmitMessage("recv from", peer, ++received_[peer], tensor,
                       RecvSteps(ranks_, tensor, peer));
}

std::unique_ptr<Communicator> GroupCommunicator::Split(int color, int key,
                                                       const std::string& name) {
  if (auto group = SplitGroup(color, key, name)) return group;
  return std::make_unique<SingleCommunicator>(name);
}

std::unique_ptr<GroupCommunicator> GroupCommunicator::SplitGroup(int color, int key,
                                                                 const std::string& name) {
  const at::Tensor mine = at::empty({3}, at::kLong);
  at::Tensor all = at::empty({size(), 3}, at::kLong);
  int64_t* values = mine.data_ptr<int64_t>();
  values[0] = color;
  values[1] = key;
  values[2] = engine_->next_group();
  AllGather(all, mine).Wait();

  std::vector<std::tuple<int64_t, int>> members;  // key, rank
  int64_t id = 0;
  for (int rank = 0; rank < size(); ++rank) {
    const int64_t* row = all.data_ptr<int64_t>() + static_cast<int64_t>(rank) * 3;
    if (row[0] == color) members.emplace_back(row[1], rank);
    id = std::max(id, row[2]);
  }
  // Above the number of every group of any member: two groups with a common rank differ. Those of
  // one call have none, and share the number.
  if (id >= kMostGroups) {
    throw RunError(
        fmt::format("group {}, a part of group {}: its ranks have been in {} groups already, the "
                    "most that there can be; start the run again",
                    name, name_, id));
  }
  engine_->ReserveGroup(static_cast<int>(id));
  if (members.size() == 1) return nullptr;

  std::sort(members.begin(), members.end());
  GroupRanks ranks;
  for (const auto& [member_key, rank] : members) {
    if (rank == this->rank()) ranks.self = ranks.size();
    ranks.world.push_back(ranks_.world[rank]);
  }
  return std::unique_ptr<GroupCommunicator>(
      new GroupCommunicator(engine_, std::move(ranks), static_cast<int>(id), name));
}

}  // namespace equipoise
