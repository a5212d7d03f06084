#include "tests/parallel/nccl_stand_in_calls.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "parallel/comm/nccl_api.h"

namespace equipoise::stand_in {
namespace {

at::ScalarType TypeOf(int type) {
  static const std::map<int, at::ScalarType> kTypes = {
      {NcclApi::kUint8, at::kByte},     {NcclApi::kInt64, at::kLong},
      {NcclApi::kFloat16, at::kHalf},   {NcclApi::kFloat32, at::kFloat},
      {NcclApi::kFloat64, at::kDouble}, {NcclApi::kBfloat16, at::kBFloat16}};
  return kTypes.at(type);
}

at::Tensor View(const void* data, size_t count, int type) {
  return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(count)}, TypeOf(type));
}

// Part `part` of the ranks' inputs, added from the rank behind `part` round the ring.
at::Tensor RingReduce(const std::vector<at::Tensor>& inputs, int part, int op) {
  const int n = static_cast<int>(inputs.size());
  at::Tensor sum = inputs[(part + 1) % n].clone();
  for (int hop = 2; hop <= n; ++hop) {
    const at::Tensor& next = inputs[(part + hop) % n];
    if (op == NcclApi::kSum) sum = at::add(sum, next);
    if (op == NcclApi::kMax) sum = at::maximum(sum, next);
    if (op == NcclApi::kMin) sum = at::minimum(sum, next);
  }
  return sum;
}

}  // namespace

std::string Describe(const Op& op) {
  static const char* const kNames[] = {"all_reduce", "reduce_scatter", "all_gather",
                                       "broadcast",  "send to",        "recv from"};
  std::string text = "rank " + std::to_string(op.group->ranks[op.member]) + ": " +
                     kNames[static_cast<int>(op.kind)];
  if (!op.collective()) text += " rank " + std::to_string(op.group->ranks[op.argument]);
  return text + " #" + std::to_string(op.index + 1) + " (" + std::to_string(op.count) +
         " elements of type " + std::to_string(op.type) + ") on communicator " +
         std::to_string(op.group->number);
}

bool Queue::Give() {
  bool any = false;
  while (!streams_.empty()) {
    Item& item = streams_.front()->items.front();
    // The stream is busy with an earlier item, or waits.
    if (item.given || (item.what == Item::What::kWait && !item.event->done)) break;
    item.given = any = true;
    streams_.pop_front();
  }
  return any;
}

void Abort(const Comm& comm) {
  Group& group = *comm.group;
  group.aborted[comm.member] = true;
  for (const auto& op : group.collectives[comm.member]) op->finished = true;
  for (auto& [ends, lane] : group.lanes) {
    for (const auto* ops : {&lane.sends, &lane.receives}) {
      for (const auto& op : *ops) {
        if (op->member == comm.member) op->finished = true;
      }
    }
  }
}

std::string DestroyOrder::Add(int rank, const Group& group) {
  const auto aborted = [](const Group* each) {
    return std::find(each->aborted.begin(), each->aborted.end(), true) != each->aborted.end();
  };
  for (const int other : group.ranks) {
    if (other == rank) continue;
    auto& mine = common_[{rank, other}];
    auto& theirs = common_[{other, rank}];
    mine.push_back(&group);
    std::erase_if(mine, aborted);
    std::erase_if(theirs, aborted);
    if (aborted(&group) || theirs.size() < mine.size() || theirs[mine.size() - 1] == &group)
      continue;
    return "rank " + std::to_string(rank) + " destroys communicator " +
           std::to_string(group.number) + " where rank " + std::to_string(other) + " destroyed " +
           std::to_string(theirs[mine.size() - 1]->number) + ": that needs one order";
  }
  return "";
}

int PinnedMemory::Pin(void** data, size_t bytes) {
  std::lock_guard lock(mutex_);
  *data = std::malloc(bytes);
  pinned_[*data] = bytes;
  bytes_ += bytes;
  most_bytes_ = std::max(most_bytes_, bytes_);
  return 0;
}

int PinnedMemory::Unpin(void* data) {
  std::lock_guard lock(mutex_);
  const auto pinned = pinned_.find(data);
  if (pinned == pinned_.end()) return 1;
  bytes_ -= pinned->second;
  pinned_.erase(pinned);
  std::free(data);
  return 0;
}

int PinnedMemory::Copy(void* to, const void* from, size_t bytes, int kind) {
  std::lock_guard lock(mutex_);
  if (pinned_.count(kind == CudaApi::kDeviceToHost ? to : from) == 0) return 1;
  std::memcpy(to, from, bytes);
  return 0;
}

int PinnedMemory::buffers() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(pinned_.size());
}

size_t PinnedMemory::most_bytes() const {
  std::lock_guard lock(mutex_);
  return most_bytes_;
}

std::vector<std::shared_ptr<Op>> Partners(const Op& op, std::set<int>* missing) {
  std::vector<std::shared_ptr<Op>> found;
  const auto take = [&](const std::vector<std::shared_ptr<Op>>& ops, int member) {
    if (ops.size() > op.index) {
      found.push_back(ops[op.index]);
    } else if (missing) {
      missing->insert(op.group->ranks[member]);
    }
  };
  if (op.collective()) {
    for (size_t m = 0; m < op.group->ranks.size(); ++m) {
      take(op.group->collectives[m], static_cast<int>(m));
    }
  } else if (op.kind == Kind::kSend) {
    take(op.group->lanes[{op.member, op.argument}].receives, op.argument);
  } else {
    take(op.group->lanes[{op.argument, op.member}].sends, op.argument);
  }
  return found;
}

bool Live(const Op& op) {
  if (op.unit == 0 || op.stream->items.empty()) return false;
  const Item& item = op.stream->items.front();
  return item.given && item.unit == op.unit;
}

size_t Bytes(const Op& op) { return View(op.in, op.count, op.type).nbytes(); }

void Execute(const std::vector<std::shared_ptr<Op>>& ops) {
  const int n = static_cast<int>(ops.size());
  const Op& first = *ops[0];
  std::vector<at::Tensor> inputs;
  const bool scatter = first.kind == Kind::kReduceScatter;
  for (const auto& op : ops) {
    inputs.push_back(View(op->in, op->count * (scatter ? n : 1), op->type));
  }
  std::vector<at::Tensor> results;
  if (first.kind == Kind::kAllReduce || scatter) {
    const auto count = inputs[0].numel();
    for (int part = 0; part < n; ++part) {
      std::vector<at::Tensor> parts;
      for (const at::Tensor& input : inputs) {
        parts.push_back(input.slice(0, count * part / n, count * (part + 1) / n));
      }
      results.push_back(RingReduce(parts, part, first.argument));
    }
    if (!scatter) results = {at::cat(results)};
  } else if (first.kind == Kind::kAllGather) {
    results = {at::cat(inputs)};
  } else {
    results = {inputs[first.argument].clone()};
  }
  for (int member = 0; member < n; ++member) {
    const at::Tensor& result = results[results.size() == 1 ? 0 : member];
    View(ops[member]->out, static_cast<size_t>(result.numel()), first.type).copy_(result);
    ops[member]->finished = true;
  }
}

}  // namespace equipoise::stand_in
