#include "parallel/comm/nccl_communicator.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <set>
#include <string>

#include "configs/base/error.h"
#include "parallel/comm/operation_text.h"

namespace equipoise {
namespace {

int NcclType(at::ScalarType dtype) {
  switch (dtype) {
    case at::ScalarType::Byte:
      return NcclApi::kUint8;
    case at::ScalarType::Long:
      return NcclApi::kInt64;
    case at::ScalarType::Half:
      return NcclApi::kFloat16;
    case at::ScalarType::Float:
      return NcclApi::kFloat32;
    case at::ScalarType::Double:
      return NcclApi::kFloat64;
    case at::ScalarType::BFloat16:
      return NcclApi::kBfloat16;
    default:
      EQUIPOISE_CHECK(false, "NCCL moves no tensors of type ", c10::toString(dtype));
  }
  return 0;
}

// A tensor as NCCL's arguments.
struct Data {
  void* data;
  size_t count;
  int type;
  explicit Data(const at::Tensor& tensor)
      : data(tensor.data_ptr()),
        count(static_cast<size_t>(tensor.numel())),
        type(NcclType(tensor.scalar_type())) {}
};

std::vector<int> OtherRanks(const GroupRanks& ranks) {
  std::vector<int> others = ranks.world;
  others.erase(others.begin() + ranks.self);
  return others;
}

at::Tensor IdTensor(int count) {
  return at::empty({count, static_cast<int64_t>(sizeof(NcclUniqueId))}, at::kByte);
}

void PutId(const NcclApi& api, const at::Tensor& row) {
  NcclUniqueId id;
  api.Check(api.new_id(&id), "ncclGetUniqueId");
  std::memcpy(row.data_ptr(), &id, sizeof id);
}

NcclUniqueId GetId(const at::Tensor& row) {
  NcclUniqueId id;
  std::memcpy(&id, row.data_ptr(), sizeof id);
  return id;
}

}  // namespace

NcclCommunicator::NcclCommunicator(std::unique_ptr<GroupCommunicator> group,
                                   std::shared_ptr<const NcclApi> api, at::DeviceType device)
    : DeviceCommunicator(std::move(group), device), api_(std::move(api)) {
  at::Tensor id = IdTensor(1);
  if (rank() == 0) PutId(*api_, id[0]);
  cpu().Broadcast(id, 0).Wait();
  collectives_ = Join(OtherRanks(cpu().ranks()), GetId(id[0]), size(), rank());
}

std::shared_ptr<NcclLink> NcclCommunicator::Join(std::vector<int> others, const NcclUniqueId& id,
                                                 int ranks, int self) {
  return std::make_shared<NcclLink>(
      *cpu().engine(), LinkPlan("ncclCommInitRank", std::move(others)), api_, id, ranks, self);
}

CollectiveSteps NcclCommunicator::LinkPlan(const char* call, std::vector<int> others) const {
  CollectiveSteps plan = Plan({}, std::move(others));
  plan.tag.point_to_point = true;
  plan.text = std::string(call) + " in group " + name();
  return plan;
}

std::unique_ptr<Communicator> NcclCommunicator::Wrap(std::unique_ptr<GroupCommunicator> part) {
  return std::make_unique<NcclCommunicator>(std::move(part), api_, device());
}

void NcclCommunicator::Connect(const std::vector<std::pair<int, int>>& pairs) {
  std::set<std::pair<int, int>> ordered;
  for (const auto& [a, b] : pairs) {
    EQUIPOISE_CHECK(a != b && std::min(a, b) >= 0 && std::max(a, b) < size(), a, " and ", b, " of ",
                    size(), " ranks");
    ordered.emplace(std::min(a, b), std::max(a, b));
  }
  std::vector<int> peers;
  // In one order on all ranks, so that no cycle of ranks waits.
  for (const auto& [low, high] : ordered) {
    if (low != rank() && high != rank()) continue;
    const int peer = low == rank() ? high : low;
    if (to_.count(peer) != 0) continue;
    ConnectPair(peer);
    peers.push_back(peer);
  }
  WarmUp(peers);
  Barrier(cpu());
}

void NcclCommunicator::ConnectPair(int peer) {
  const bool low = rank() < peer;
  at::Tensor ids = IdTensor(2);  // low to high, high to low
  if (low) {
    for (int i = 0; i < 2; ++i) PutId(*api_, ids[i]);
    cpu().Send(ids, peer).Wait();
  } else {
    cpu().Recv(ids, peer).Wait();
  }
  for (int i = 0; i < 2; ++i) {
    const bool sending = low == (i == 0);
    auto& direction = (sending ? to_ : from_)[peer];
    direction.link = Join({cpu().ranks().world[peer]}, GetId(ids[i]), 2, low ? 0 : 1);
  }
}

// NCCL connects two ranks at their first transfer, in which both wait for each other. Doing that
// here keeps it out of a step, where it could deadlock.
void NcclCommunicator::WarmUp(const std::vector<int>& peers) {
  if (peers.empty()) return;
  const auto count = static_cast<int64_t>(peers.size());
  const at::Tensor bytes = at::zeros({2, count}, at::TensorOptions(device()).dtype(at::kByte));
  std::vector<NcclCall> calls;
  CollectiveSteps plan = Plan({bytes}, {});
  plan.tag.point_to_point = true;
  plan.text = "connecting in group " + name();
  for (int64_t i = 0; i < count; ++i) {
    const int peer = peers[i];
    plan.awaited.push_back(cpu().ranks().world[peer]);
    const int other = rank() < peer ? 1 : 0;  // its rank in both communicators
    auto* data = static_cast<uint8_t*>(bytes.data_ptr()) + i;
    calls.push_back({to_[peer].link, "ncclSend", [data, other](auto& api, auto comm, auto stream) {
                       return api.send(data, 1, NcclApi::kUint8, other, comm, stream);
                     }});
    calls.push_back({from_[peer].link, "ncclRecv",
                     [in = data + count, other](auto& api, auto comm, auto stream) {
                       return api.receive(in, 1, NcclApi::kUint8, other, comm, stream);
                     }});
  }
  NcclBatch batch;
  Work connected = batch.Add(*cpu().engine(), std::move(plan), std::move(calls));
  batch.Issue();
  connected.Wait();
}

// ncclCommDestroy may wait for the other ranks of a communicator. The order of pairs is that of
// Connect(), so no circle of ranks waits.
NcclCommunicator::~NcclCommunicator() {
  // The others may be in mid-step, and have not heard of the failure that unwinds.
  if (std::uncaught_exceptions() > 0) return;
  const auto close = [this](const std::shared_ptr<NcclLink>& link, std::vector<int> others) {
    if (link) link->Close(*cpu().engine(), LinkPlan("ncclCommDestroy", std::move(others)));
  };
  for (auto& [peer, to] : to_) {
    const auto& from = from_[peer].link;
    const bool low = rank() < peer;
    for (const auto& link : {low ? to.link : from, low ? from : to.link}) {
      close(link, {cpu().ranks().world[peer]});
    }
  }
  close(collectives_, OtherRanks(cpu().ranks()));
}

CollectiveSteps NcclCommunicator::Plan(std::vector<at::Tensor> tensors,
                                       std::vector<int> awaited) const {
  CollectiveSteps plan;
  // A number other than the CPU backend's, whose operations these need not wait for.
  plan.tag.group = -1 - cpu().id();
  plan.tensors = std::move(tensors);
  plan.awaited = std::move(awaited);
  return plan;
}

Work NcclCommunicator::Collective(const char* kind, std::vector<at::Tensor> tensors, Run run,
                                  std::function<void()> finish) {
  const size_t bytes = tensors.front().nbytes();
  CollectiveSteps plan = Plan(std::move(tensors), OtherRanks(cpu().ranks()));
  plan.tag.sequence = ++sequence_;
  plan.text = CollectiveText(kind, sequence_, name(), bytes);
  NcclBatch batch;
  Work work = batch.Add(*cpu().engine(), std::move(plan), {{collectives_, kind, std::move(run)}},
                        std::move(finish));
  batch.Issue();
  return work;
}

Work NcclCommunicator::Message(const char* kind, int peer, Direction& direction,
                               const at::Tensor& tensor, Run run) {
  EQUIPOISE_CHECK(direction.link, "rank ", rank(), " and rank ", peer, " of group ", name(),
                  " are not connected: call Connect() first");
  const int other = cpu().ranks().world[peer];
  CollectiveSteps plan = Plan({tensor}, {other});
  plan.tag.point_to_point = true;
  plan.tag.sequence = ++direction.messages;
  plan.text = MessageText({kind, other, direction.messages}, name(), tensor.nbytes());
  Work work =
      joined_.Add(*cpu().engine(), std::move(plan), {{direction.link, kind, std::move(run)}});
  if (!joining_) joined_.Issue();
  return work;
}

void NcclCommunicator::EndTransfers() noexcept {
  joining_ = false;
  joined_.Issue();
}

Work NcclCommunicator::DoAllReduce(at::Tensor& tensor, ReduceOp op) {
  if (op != ReduceOp::kSum && tensor.is_floating_point()) return Extreme(tensor, tensor, op);
  const int code = op == ReduceOp::kSum   ? NcclApi::kSum
                   : op == ReduceOp::kMax ? NcclApi::kMax
                                          : NcclApi::kMin;
  return Collective("all_reduce", {tensor}, [d = Data(tensor), code](auto& api, auto c, auto s) {
    return api.all_reduce(d.data, d.data, d.count, d.type, code, c, s);
  });
}

// All-gathers the inputs and takes their maximum or minimum, which is NaN where any is.
Work NcclCommunicator::Extreme(at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  const at::Tensor all = at::empty({size(), input.numel()}, input.options());
  const int64_t begin = output.numel() == input.numel() ? 0 : rank() * output.numel();
  const auto finish = [all, output, begin, op] {
    const at::Tensor mine = all.narrow(1, begin, output.numel());
    at::Tensor flat = output.view({-1});
    op == ReduceOp::kMax ? at::amax_out(flat, mine, {0}) : at::amin_out(flat, mine, {0});
  };
  return Collective(
      "all_reduce", {input, all, output},
      [in = Data(input), out = all.data_ptr()](auto& api, auto c, auto s) {
        return api.all_gather(in.data, out, in.count, in.type, c, s);
      },
      finish);
}

Work NcclCommunicator::DoAllGather(at::Tensor& output, const at::Tensor& input) {
  return Collective("all_gather", {output, input},
                    [out = Data(output), in = Data(input)](auto& api, auto c, auto s) {
                      return api.all_gather(in.data, out.data, in.count, in.type, c, s);
                    });
}

Work NcclCommunicator::DoReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  if (op != ReduceOp::kSum) return Extreme(output, input, op);
  return Collective("reduce_scatter", {input, output},
                    [out = Data(output), in = Data(input)](auto& api, auto c, auto s) {
                      return api.reduce_scatter(in.data, out.data, out.count, out.type,
                                                NcclApi::kSum, c, s);
                    });
}

Work NcclCommunicator::DoBroadcast(at::Tensor& tensor, int root) {
  return Collective("broadcast", {tensor}, [d = Data(tensor), root](auto& api, auto c, auto s) {
    return api.broadcast(d.data, d.data, d.count, d.type, root, c, s);
  });
}

Work NcclCommunicator::DoSend(const at::Tensor& tensor, int peer) {
  const int other = rank() < peer ? 1 : 0;
  return Message("send to", peer, to_[peer], tensor,
                 [d = Data(tensor), other](auto& api, auto c, auto s) {
                   return api.send(d.data, d.count, d.type, other, c, s);
                 });
}

Work NcclCommunicator::DoRecv(at::Tensor& tensor, int peer) {
  const int other = rank() < peer ? 1 : 0;
  return Message("recv from", peer, from_[peer], tensor,
                 [d = Data(tensor), other](auto& api, auto c, auto s) {
                   return api.receive(d.data, d.count, d.type, other, c, s);
                 });
}

}  // namespace equipoise
