#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/comm/operation.h"

namespace equipoise {

// The algorithms, as plans over messages between pairs of ranks: every wait knows its peer, and
// every reduction adds in rank order, whatever carries the bytes.
struct GroupRanks {
  std::vector<int> world;  // by rank in the group: rank in the world
  int self = 0;            // this rank in the group
  int size() const { return static_cast<int>(world.size()); }
};

// Each fills staging_bytes, tensors and next; the caller adds text and tag. Tensors are contiguous
// and not empty.
// Every rank sends rank i its i-th shard, adds what it gets in rank order, and sends the sum to
// all; small tensors are sent whole to all.
CollectiveSteps AllReduceSteps(const GroupRanks& group, const at::Tensor& tensor, ReduceOp op);
CollectiveSteps AllGatherSteps(const GroupRanks& group, const at::Tensor& output,
                               const at::Tensor& input);
CollectiveSteps ReduceScatterSteps(const GroupRanks& group, const at::Tensor& output,
                                   const at::Tensor& input, ReduceOp op);
// The root sends every rank a shard and the ranks send these to each other; small tensors are sent
// whole to all.
CollectiveSteps BroadcastSteps(const GroupRanks& group, const at::Tensor& tensor, int root);
CollectiveSteps SendSteps(const GroupRanks& group, const at::Tensor& tensor, int peer);
CollectiveSteps RecvSteps(const GroupRanks& group, const at::Tensor& tensor, int peer);

}  // namespace equipoise
