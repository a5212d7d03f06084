#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/comm/operation.h"

namespace equipoise {

// The ranks of a group.
struct GroupRanks {
  std::vector<int> world;  // by rank in the group: rank in the world
  int self = 0;            // this rank in the group
  int size() const { return static_cast<int>(world.size()); }
};

// The collective algorithms, as steps of messages between pairs of ranks. So every wait has a peer
// to name, and every reduction adds in rank order, with the same bits over any transport. Each
// function fills staging_bytes, tensors and next; the caller adds text and tag. Tensors are
// contiguous and not empty. Costs are of one rank in a group of n, for a tensor of b bytes.

// Direct reduce-scatter and all-gather: every rank sends rank i its i-th shard, adds what it
// receives in rank order, and sends the sum to all. Sends 2 b (n - 1) / n bytes; up to 16 KiB it
// sends the whole tensor to all instead, in one phase.
CollectiveSteps AllReduceSteps(const GroupRanks& group, const at::Tensor& tensor, ReduceOp op);
// Every rank sends its input to all others, in one phase.
CollectiveSteps AllGatherSteps(const GroupRanks& group, const at::Tensor& output,
                               const at::Tensor& input);
// The first half of AllReduceSteps().
CollectiveSteps ReduceScatterSteps(const GroupRanks& group, const at::Tensor& output,
                                   const at::Tensor& input, ReduceOp op);
// Scatter and all-gather: the root sends every rank a shard, and the ranks exchange these; up to
// 16 KiB, and between two ranks, the root sends the whole tensor to all.
CollectiveSteps BroadcastSteps(const GroupRanks& group, const at::Tensor& tensor, int root);
CollectiveSteps SendSteps(const GroupRanks& group, const at::Tensor& tensor, int peer);
CollectiveSteps RecvSteps(const GroupRanks& group, const at::Tensor& tensor, int peer);

}  // namespace equipoise
