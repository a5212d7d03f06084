// Direct exchanges in place of rings and trees. A ring adds in a different order on every shard,
// and its bits depend on where it begins; here each rank receives a shard from all others and adds
// them in rank order in fp32 (reduce.h), so that the result has the same bits on every rank and in
// every backend. The volume is that of a ring, 2 (n - 1) / n of the tensor a rank, in one round of
// messages a phase and with n - 1 messages open.
//
// Large reductions go in blocks of 2 MiB, which bounds the staging memory at (n - 1) / n of a
// block: phase k reduces block k - 1, gathers its shards and exchanges those of block k.

#include "parallel/comm/collectives.h"

#include <algorithm>
#include <cstring>

#include "parallel/comm/reduce.h"

namespace equipoise {
namespace {

// Up to this size one phase of whole tensors is faster than two of shards.
constexpr int64_t kSmallBytes = 16 << 10;
// Block of a reduction; bounds its staging memory.
constexpr int64_t kBlockBytes = 2 << 20;

using Direction = Transfer::Direction;

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

Range Shard(Range whole, int index, int count) {
  return {whole.begin + whole.size() * index / count,
          whole.begin + whole.size() * (index + 1) / count};
}

std::byte* Bytes(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

// The memory of a tensor, addressed by ranges of elements.
struct Elements {
  std::byte* data;
  int64_t item;  // bytes of an element
  explicit Elements(const at::Tensor& tensor)
      : data(Bytes(tensor)), item(static_cast<int64_t>(tensor.element_size())) {}
  std::byte* at(int64_t index) const { return data + index * item; }
  Transfer Message(Direction direction, int peer, Range range) const {
    return {direction, peer, at(range.begin), static_cast<size_t>(range.size() * item)};
  }
};

void AddIfAny(std::vector<Transfer>& transfers, const Transfer& transfer) {
  if (transfer.bytes > 0) transfers.push_back(transfer);
}

// An exchange whose result is reduced: a rank receives the same range from every other into
// staging; its own stays in place.
struct Exchange {
  const GroupRanks& group;
  Elements elements;
  std::byte* staging;
  at::ScalarType dtype;
  ReduceOp op;

  std::byte* Slot(int rank, int64_t count) const {
    return staging + (rank < group.self ? rank : rank - 1) * count * elements.item;
  }
  // Lists a send of the range `to(rank)` to each rank and a receive of the size of `mine` from it.
  template <class RangeOf>
  void List(RangeOf to, Range mine, std::vector<Transfer>& transfers) const {
    for (int rank = 0; rank < group.size(); ++rank) {
      if (rank == group.self) continue;
      const int peer = group.world[rank];
      AddIfAny(transfers, {Direction::kReceive, peer, Slot(rank, mine.size()),
                           static_cast<size_t>(mine.size() * elements.item)});
      AddIfAny(transfers, elements.Message(Direction::kSend, peer, to(rank)));
    }
  }
  void ReduceTo(std::byte* out, Range mine) const {
    std::vector<const void*> parts(group.size());
    for (int rank = 0; rank < group.size(); ++rank) {
      parts[rank] = rank == group.self ? elements.at(mine.begin) : Slot(rank, mine.size());
    }
    Reduce(out, parts, mine.size(), dtype, op);
  }
};

// Lists the exchange of shards after which every rank but `skip` has all of `whole`. Rank i has
// shard i.
void ListGather(const GroupRanks& group, const Elements& elements, Range whole, int skip,
                std::vector<Transfer>& transfers) {
  const Range mine = Shard(whole, group.self, group.size());
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.self) continue;
    const Range theirs = Shard(whole, rank, group.size());
    if (group.self != skip && rank != skip) {
      AddIfAny(transfers, elements.Message(Direction::kReceive, group.world[rank], theirs));
      AddIfAny(transfers, elements.Message(Direction::kSend, group.world[rank], mine));
    }
  }
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

CollectiveSteps AllReduceSteps(const GroupRanks& group, const at::Tensor& tensor, ReduceOp op) {
  const Elements elements(tensor);
  const int n = group.size();
  const int64_t count = tensor.numel();
  const at::ScalarType dtype = tensor.scalar_type();
  CollectiveSteps plan;
  plan.tensors = {tensor};
  if (count * elements.item <= kSmallBytes) {
    plan.staging_bytes = static_cast<size_t>((n - 1) * count * elements.item);
    plan.next = [=](int64_t phase, std::byte* staging, std::vector<Transfer>& transfers) {
      const Exchange exchange{group, elements, staging, dtype, op};
      const Range whole{0, count};
      if (phase == 0) {
        exchange.List([&](int) { return whole; }, whole, transfers);
      } else {
        exchange.ReduceTo(elements.data, whole);
      }
      return phase == 0;
    };
    return plan;
  }
  const int64_t block = kBlockBytes / elements.item;
  const int64_t shard = CeilDiv(std::min(block, count), n);
  plan.staging_bytes = static_cast<size_t>((n - 1) * shard * elements.item);
  const auto block_at = [=](int64_t index) {
    return Range{std::min(index * block, count), std::min((index + 1) * block, count)};
  };
  // One phase gathers the reduced shards of a block and exchanges those of the next.
  plan.next = [=](int64_t phase, std::byte* staging, std::vector<Transfer>& transfers) {
    const Exchange exchange{group, elements, staging, dtype, op};
    const Range last = block_at(phase - 1), next = block_at(phase);
    if (phase > 0 && last.size() == 0) return false;
    if (phase > 0) {
      const Range mine = Shard(last, group.self, n);
      exchange.ReduceTo(elements.at(mine.begin), mine);
      ListGather(group, elements, last, /*skip=*/-1, transfers);
    }
    if (next.size() > 0) {
      exchange.List([&](int rank) { return Shard(next, rank, n); }, Shard(next, group.self, n),
                    transfers);
    }
    return true;
  };
  return plan;
}

CollectiveSteps AllGatherSteps(const GroupRanks& group, const at::Tensor& output,
                               const at::Tensor& input) {
  const Elements to(output), from(input);
  const Range whole{0, output.numel()};
  CollectiveSteps plan;
  plan.tensors = {output, input};
  plan.next = [=](int64_t phase, std::byte*, std::vector<Transfer>& transfers) {
    if (phase > 0) return false;
    const Range mine = Shard(whole, group.self, group.size());
    if (to.at(mine.begin) != from.data) {
      std::memcpy(to.at(mine.begin), from.data, static_cast<size_t>(mine.size() * to.item));
    }
    ListGather(group, to, whole, /*skip=*/-1, transfers);
    return true;
  };
  return plan;
}

CollectiveSteps ReduceScatterSteps(const GroupRanks& group, const at::Tensor& output,
                                   const at::Tensor& input, ReduceOp op) {
  const Elements from(input), to(output);
  const int n = group.size();
  const int64_t count = output.numel();
  const at::ScalarType dtype = input.scalar_type();
  const int64_t block = std::max<int64_t>(1, kBlockBytes / from.item / n);
  CollectiveSteps plan;
  plan.tensors = {output, input};
  plan.staging_bytes = static_cast<size_t>((n - 1) * std::min(block, count) * from.item);
  plan.next = [=](int64_t phase, std::byte* staging, std::vector<Transfer>& transfers) {
    const Exchange exchange{group, from, staging, dtype, op};
    const auto range = [&](int64_t index, int rank) {
      return Range{rank * count + index * block,
                   rank * count + std::min((index + 1) * block, count)};
    };
    if (phase > 0) exchange.ReduceTo(to.at((phase - 1) * block), range(phase - 1, group.self));
    if (phase * block >= count) return false;
    exchange.List([&](int rank) { return range(phase, rank); }, range(phase, group.self),
                  transfers);
    return true;
  };
  return plan;
}

CollectiveSteps BroadcastSteps(const GroupRanks& group, const at::Tensor& tensor, int root) {
  const Elements elements(tensor);
  const int n = group.size();
  const Range whole{0, tensor.numel()};
  const bool whole_to_all = n == 2 || whole.size() * elements.item <= kSmallBytes;
  CollectiveSteps plan;
  plan.tensors = {tensor};
  plan.next = [=](int64_t phase, std::byte*, std::vector<Transfer>& transfers) {
    const auto range = [&](int rank) { return whole_to_all ? whole : Shard(whole, rank, n); };
    if (phase == 0 && group.self == root) {
      for (int rank = 0; rank < n; ++rank) {
        if (rank == root) continue;
        AddIfAny(transfers, elements.Message(Direction::kSend, group.world[rank], range(rank)));
        if (!whole_to_all) {
          AddIfAny(transfers, elements.Message(Direction::kSend, group.world[rank], range(root)));
        }
      }
    } else if (phase == 0) {
      const int from = group.world[root];
      AddIfAny(transfers, elements.Message(Direction::kReceive, from, range(group.self)));
      if (!whole_to_all) {
        AddIfAny(transfers, elements.Message(Direction::kReceive, from, range(root)));
      }
    } else if (phase == 1 && !whole_to_all) {
      ListGather(group, elements, whole, /*skip=*/root, transfers);
    } else {
      return false;
    }
    return true;
  };
  return plan;
}

namespace {

CollectiveSteps MessageSteps(Direction direction, int peer, const at::Tensor& tensor) {
  const Transfer transfer{direction, peer, tensor.numel() > 0 ? Bytes(tensor) : nullptr,
                          tensor.nbytes()};
  CollectiveSteps plan;
  plan.tensors = {tensor};
  plan.next = [transfer](int64_t phase, std::byte*, std::vector<Transfer>& transfers) {
    if (phase == 0) transfers.push_back(transfer);
    return phase == 0;
  };
  return plan;
}

}  // namespace

CollectiveSteps SendSteps(const GroupRanks& group, const at::Tensor& tensor, int peer) {
  return MessageSteps(Direction::kSend, group.world[peer], tensor);
}

CollectiveSteps RecvSteps(const GroupRanks& group, const at::Tensor& tensor, int peer) {
  return MessageSteps(Direction::kReceive, group.world[peer], tensor);
}

}  // namespace equipoise
