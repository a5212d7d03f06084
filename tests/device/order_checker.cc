#include "tests/device/order_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "parallel/comm/transfer_group.h"

namespace equipoise::testing {
namespace {

using What = TraceStep::What;

// Of this thread: whether it computes (a rank's own, and that of its GPU's backward), the
// communication that it asks for, and the events that it has recorded behind NCCL's calls.
thread_local bool computes = false;
thread_local std::string asks_for, in_group;
thread_local std::vector<int64_t> recorded;

size_t ElementBytes(int type) {
  switch (type) {
    case NcclApi::kUint8:
      return 1;
    case NcclApi::kFloat16:
    case NcclApi::kBfloat16:
      return 2;
    case NcclApi::kFloat32:
      return 4;
    default:
      return 8;
  }
}

MemoryUse Range(const void* data, size_t bytes, bool write) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  return {begin, begin + bytes, write};
}

}  // namespace

class OrderChecker::Rank {
 public:
  void Add(TraceStep step) {
    const std::lock_guard lock(mutex_);
    step.computes = computes;
    if (step.what == What::kUse || step.what == What::kFree) step.doing = doing_;
    trace_.push_back(std::move(step));
  }
  void NewStream(void* handle) {
    const std::lock_guard lock(mutex_);
    streams_[handle] = ++stream_count_;
    links_.insert(handle);
  }
  // Whether NCCL's calls run there, not ATen's.
  bool IsLink(void* stream) {
    const std::lock_guard lock(mutex_);
    return links_.count(stream) > 0;
  }
  int64_t NewEvent(const void* handle) {
    const std::lock_guard lock(mutex_);
    return events_[handle] = ++event_count_;
  }
  void NewGroup(void* comm, int ranks) {
    const std::lock_guard lock(mutex_);
    groups_[comm] = static_cast<size_t>(ranks);
  }
  int StreamOf(void* handle) {
    const std::lock_guard lock(mutex_);
    if (handle == nullptr) return 0;
    const auto [found, is_new] = streams_.try_emplace(handle);
    if (is_new) found->second = ++stream_count_;
    return found->second;
  }
  int64_t EventOf(const void* handle) {
    const std::lock_guard lock(mutex_);
    return events_.at(handle);
  }
  // Of ATen's.
  void RecordedOn(void* stream, const void* event) {
    const int64_t number = NewEvent(event);
    const int at = StreamOf(stream);
    {
      const std::lock_guard lock(mutex_);
      made_on_[number] = at;
    }
    Add({What::kRecord, at, {number}, {}, ""});
  }
  void WaitsOn(void* stream, const void* event, bool named) {
    const int64_t number = EventOf(event);
    bool beside = false;
    {
      const std::lock_guard lock(mutex_);
      beside = made_on_[number] != 0;
    }
    const char* what = beside ? "what a stream beside has" : "what the compute stream has";
    Add({What::kStreamWait, StreamOf(stream), {number}, {}, named ? what : ""});
  }
  size_t RanksOf(void* comm) {
    const std::lock_guard lock(mutex_);
    return groups_.at(comm);
  }
  void Announce(const std::string& doing) {
    const std::lock_guard lock(mutex_);
    doing_ = doing;
  }
  const Trace& trace() const { return trace_; }

  // A call of NCCL that reads and writes so many bytes.
  void Call(const char* name, void* stream, const void* in, size_t read, void* out,
            size_t written) {
    TraceStep step{What::kUse, StreamOf(stream), {}, {}, name + in_group};
    if (read > 0) step.uses.push_back(Range(in, read, /*write=*/false));
    if (written > 0) step.uses.push_back(Range(out, written, /*write=*/true));
    Add(std::move(step));
  }

 private:
  std::mutex mutex_;
  std::map<void*, int> streams_;
  std::set<void*> links_;
  std::map<const void*, int64_t> events_;
  std::map<int64_t, int> made_on_;  // by event of ATen's: its stream
  std::map<void*, size_t> groups_;
  int stream_count_ = 0;
  int64_t event_count_ = 0;
  std::string doing_;
  Trace trace_;
};

namespace {

// The events behind NCCL's calls of an operation; none for tensors of the CPU.
using Events = std::shared_ptr<std::vector<int64_t>>;

class WatchedWork : public Work::State {
 public:
  WatchedWork(Work work, std::shared_ptr<OrderChecker::Rank> rank, Events events, std::string name)
      : work_(std::move(work)),
        rank_(std::move(rank)),
        events_(std::move(events)),
        name_(std::move(name)) {}

  void Wait() override {
    // Before what the operation itself does at its end.
    if (!events_->empty()) rank_->Add({What::kHostWait, 0, std::exchange(*events_, {}), {}, name_});
    work_.Wait();
  }
  void WaitOnStream() override {
    asks_for = name_;
    work_.WaitOnStream();
    asks_for.clear();
    events_->clear();
  }
  bool Done() const override { return work_.Done(); }
  Work::Clock::time_point FinishedAt() const override { return work_.FinishedAt(); }

 private:
  Work work_;
  std::shared_ptr<OrderChecker::Rank> rank_;
  Events events_;
  std::string name_;
};

class WatchedCommunicator : public Communicator, public JoinsTransfers {
 public:
  WatchedCommunicator(std::unique_ptr<Communicator> group, std::shared_ptr<OrderChecker::Rank> rank)
      : group_(std::move(group)), rank_(std::move(rank)) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const std::string& name() const override { return group_->name(); }

  Work AllReduce(at::Tensor& tensor, ReduceOp op) override {
    return Ask("all_reduce", [&] { return group_->AllReduce(tensor, op); });
  }
  Work AllGather(at::Tensor& output, const at::Tensor& input) override {
    return Ask("all_gather", [&] { return group_->AllGather(output, input); });
  }
  Work ReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp op) override {
    return Ask("reduce_scatter", [&] { return group_->ReduceScatter(output, input, op); });
  }
  Work Broadcast(at::Tensor& tensor, int root) override {
    return Ask("broadcast", [&] { return group_->Broadcast(tensor, root); });
  }
  Work Send(const at::Tensor& tensor, int peer) override {
    return Ask("send", [&] { return group_->Send(tensor, peer); });
  }
  Work Recv(at::Tensor& tensor, int peer) override {
    return Ask("recv", [&] { return group_->Recv(tensor, peer); });
  }
  void BeginTransfers() override {
    joining_ = true;
    inner_.emplace(*group_);
  }
  void EndTransfers() noexcept override {
    Begin("exchange");
    inner_.reset();
    joining_ = false;
    const std::vector<int64_t> events = End();
    // In the order of the transfers, whose tensors are all on the GPU.
    for (size_t i = 0; i < std::min(events.size(), joined_.size()); ++i) *joined_[i] = {events[i]};
    joined_.clear();
  }
  void Announce(const std::string& compute) override {
    rank_->Announce(compute);
    group_->Announce(compute);
  }
  void ProgressInBackground() override { group_->ProgressInBackground(); }
  void Connect(const std::vector<std::pair<int, int>>& pairs) override {
    Ask("connecting", [&] { return group_->Connect(pairs), Work(); });
  }
  std::unique_ptr<Communicator> Split(int color, int key, const std::string& name) override {
    return std::make_unique<WatchedCommunicator>(group_->Split(color, key, name), rank_);
  }

 private:
  void Begin(const char* kind) const {
    computes = true;
    recorded.clear();
    in_group = " in group " + name();
    asks_for = kind + in_group;
  }
  static std::vector<int64_t> End() {
    asks_for.clear();
    in_group.clear();
    return std::exchange(recorded, {});
  }
  template <class Call>
  Work Ask(const char* kind, const Call& call) {
    Begin(kind);
    std::string name = asks_for;
    Work work = call();
    const auto events = std::make_shared<std::vector<int64_t>>(End());
    if (joining_ && events->empty()) joined_.push_back(events);
    return Work(std::make_shared<WatchedWork>(std::move(work), rank_, events, std::move(name)));
  }

  bool joining_ = false;
  std::optional<TransferGroup> inner_;
  std::vector<Events> joined_;  // of transfers that have not started
  std::unique_ptr<Communicator> group_;
  std::shared_ptr<OrderChecker::Rank> rank_;
};

// Streams, events and the order that they make.
void WatchOrder(CudaApi& cuda, const std::shared_ptr<OrderChecker::Rank>& rank) {
  cuda.stream_create = [rank, call = cuda.stream_create](void** stream, unsigned flags) {
    const int error = call(stream, flags);
    if (error == 0) rank->NewStream(*stream);
    return error;
  };
  cuda.event_create = [rank, call = cuda.event_create](void** event, unsigned flags) {
    const int error = call(event, flags);
    if (error == 0) rank->NewEvent(*event);
    return error;
  };
  cuda.event_record = [rank, call = cuda.event_record](void* event, void* stream) {
    const int64_t number = rank->EventOf(event);
    rank->Add({What::kRecord, rank->StreamOf(stream), {number}, {}, asks_for});
    if (rank->IsLink(stream)) recorded.push_back(number);
    return call(event, stream);
  };
  cuda.stream_wait_event = [rank, call = cuda.stream_wait_event](void* stream, void* event,
                                                                 unsigned flags) {
    rank->Add({What::kStreamWait, rank->StreamOf(stream), {rank->EventOf(event)}, {}, asks_for});
    return call(stream, event, flags);
  };
  cuda.event_query = [rank, call = cuda.event_query](void* event) {
    const int error = call(event);
    if (error == 0) rank->Add({What::kSeen, 0, {rank->EventOf(event)}, {}, ""});
    return error;
  };
}

void WatchCalls(NcclApi& api, const std::shared_ptr<OrderChecker::Rank>& rank) {
  api.init = [rank, call = api.init](void** comm, int ranks, NcclUniqueId id, int member) {
    const int error = call(comm, ranks, id, member);
    if (error == 0) rank->NewGroup(*comm, ranks);
    return error;
  };
  const auto one = [rank](const char* name, auto call, bool scatters) {
    return [rank, name, call, scatters](const void* in, void* out, size_t n, int type, int op,
                                        void* comm, void* stream) {
      const size_t bytes = n * ElementBytes(type);
      rank->Call(name, stream, in, scatters ? bytes * rank->RanksOf(comm) : bytes, out, bytes);
      return call(in, out, n, type, op, comm, stream);
    };
  };
  api.all_reduce = one("all_reduce", api.all_reduce, false);
  api.reduce_scatter = one("reduce_scatter", api.reduce_scatter, true);
  api.broadcast = one("broadcast", api.broadcast, false);
  api.all_gather = [rank, call = api.all_gather](const void* in, void* out, size_t n, int type,
                                                 void* comm, void* stream) {
    const size_t bytes = n * ElementBytes(type);
    rank->Call("all_gather", stream, in, bytes, out, bytes * rank->RanksOf(comm));
    return call(in, out, n, type, comm, stream);
  };
  api.send = [rank, call = api.send](const void* in, size_t n, int type, int peer, void* comm,
                                     void* stream) {
    rank->Call("send", stream, in, n * ElementBytes(type), nullptr, 0);
    return call(in, n, type, peer, comm, stream);
  };
  api.receive = [rank, call = api.receive](void* out, size_t n, int type, int peer, void* comm,
                                           void* stream) {
    rank->Call("recv", stream, nullptr, 0, out, n * ElementBytes(type));
    return call(out, n, type, peer, comm, stream);
  };
}

}  // namespace

OrderChecker::OrderChecker(int ranks) {
  for (int r = 0; r < ranks; ++r) ranks_.push_back(std::make_shared<Rank>());
  Observe(this);
}

OrderChecker::~OrderChecker() { Observe(nullptr); }

NcclApi OrderChecker::Watched(NcclApi api, int rank) {
  WatchOrder(api.cuda, ranks_.at(static_cast<size_t>(rank)));
  WatchCalls(api, ranks_.at(static_cast<size_t>(rank)));
  return api;
}

std::unique_ptr<Communicator> OrderChecker::Watched(std::unique_ptr<Communicator> group, int rank) {
  return std::make_unique<WatchedCommunicator>(std::move(group),
                                               ranks_.at(static_cast<size_t>(rank)));
}

const Trace& OrderChecker::trace(int rank) const {
  return ranks_.at(static_cast<size_t>(rank))->trace();
}

OrderChecker::Rank* OrderChecker::RankOf(int gpu) const {
  return gpu < ranks() ? ranks_[static_cast<size_t>(gpu)].get() : nullptr;
}

void OrderChecker::Used(int gpu, void* stream, const std::string& operation,
                        const std::vector<MemoryUse>& uses) {
  computes = true;
  Rank* rank = RankOf(gpu);
  if (rank != nullptr) rank->Add({What::kUse, rank->StreamOf(stream), {}, uses, operation});
}

void OrderChecker::Taken(int gpu, void* stream, const MemoryUse& block) {
  Rank* rank = RankOf(gpu);
  if (rank != nullptr) rank->Add({What::kTake, rank->StreamOf(stream), {}, {block}, ""});
}

// LibTorch's allocator records an event on each of the others, and gives the memory away when all
// have passed.
void OrderChecker::Freed(int gpu, void* stream, const MemoryUse& block,
                         const std::vector<void*>& others) {
  Rank* rank = RankOf(gpu);
  if (rank == nullptr) return;
  for (void* other : others) {
    rank->RecordedOn(other, &block);
    rank->WaitsOn(stream, &block, /*named=*/false);
  }
  rank->Add({What::kFree, rank->StreamOf(stream), {}, {block}, "memory that is freed"});
}

void OrderChecker::Recorded(int gpu, void* stream, const void* event) {
  if (Rank* rank = RankOf(gpu)) rank->RecordedOn(stream, event);
}

void OrderChecker::StreamWaited(int gpu, void* stream, const void* event) {
  if (Rank* rank = RankOf(gpu)) rank->WaitsOn(stream, event, /*named=*/true);
}

void OrderChecker::HostWaitedFor(int gpu, const void* event) {
  if (Rank* rank = RankOf(gpu)) rank->Add({What::kHostWait, 0, {rank->EventOf(event)}, {}, ""});
}

void OrderChecker::HostWaited(int gpu, void* stream, const std::string& operation) {
  Rank* rank = RankOf(gpu);
  if (rank != nullptr) rank->Add({What::kHostSync, rank->StreamOf(stream), {}, {}, operation});
}

}  // namespace equipoise::testing
