#include "tests/parallel/nccl_stand_in.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/parallel/nccl_stand_in_calls.h"

namespace equipoise {
namespace {

using stand_in::Bytes;
using stand_in::Comm;
using stand_in::Describe;
using stand_in::Event;
using stand_in::Execute;
using stand_in::Group;
using stand_in::Item;
using stand_in::Kind;
using stand_in::Live;
using stand_in::Op;
using stand_in::Partners;
using stand_in::Stream;

constexpr int kFault = 5;   // ncclInvalidUsage
constexpr int kRemote = 6;  // ncclRemoteError
constexpr std::chrono::seconds kNeverCame{60};

}  // namespace

// All of it under one lock; whoever calls moves the streams on.
class NcclStandIn::Cluster {
 public:
  Cluster(int ranks, bool one_queue)
      : errors_(ranks), open_units_(ranks), depth_(ranks), meeting_(ranks) {
    if (one_queue) queues_.resize(ranks);
    shared_.resize(ranks, std::vector<std::vector<const Op*>>(ranks));
  }

  int NewId(NcclUniqueId* id) {
    std::lock_guard lock(mutex_);
    std::memset(id, 0, sizeof *id);
    const int number = ++ids_;
    std::memcpy(id, &number, sizeof number);
    return 0;
  }

  int Init(int rank, void** comm, int ranks, const NcclUniqueId& id, int member) {
    std::unique_lock lock(mutex_);
    int number = 0;
    std::memcpy(&number, &id, sizeof number);
    auto& group = groups_[number];
    if (!group) {
      group = std::make_unique<Group>();
      group->number = number;
      group->ranks.resize(ranks, -1);
      group->aborted.resize(ranks);
      group->collectives.resize(ranks);
    }
    if (static_cast<int>(group->ranks.size()) != ranks || group->ranks.at(member) != -1) {
      return Fault(rank, "ranks join a communicator with different sizes, or one twice");
    }
    group->ranks[member] = rank;
    ++group->joined;
    changed_.notify_all();
    if (!changed_.wait_for(lock, kNeverCame, [&] { return group->joined == ranks; })) {
      return Fault(rank, "a rank never joined communicator " + std::to_string(number));
    }
    comms_.push_back(std::make_unique<Comm>(Comm{group.get(), member}));
    *comm = comms_.back().get();
    return 0;
  }

  // Blocks until every rank has come, which NCCL may do in both calls.
  int Close(void* handle, bool abort) {
    std::unique_lock lock(mutex_);
    auto& comm = *static_cast<Comm*>(handle);
    Group& group = *comm.group;
    const int rank = group.ranks[comm.member];
    if (!std::exchange(comm.open, false)) return Fault(rank, "a communicator is freed twice");
    ++group.closed;
    std::string wrong;
    if (abort) {
      ++aborted_;
      stand_in::Abort(comm);
    } else {
      wrong = destroyed_.Add(rank, group);
    }
    Progress();
    const auto all = [&] { return group.closed == static_cast<int>(group.ranks.size()); };
    if (wrong.empty() && !changed_.wait_for(lock, kNeverCame, all)) {
      wrong = "a rank never destroyed communicator " + std::to_string(group.number);
    }
    return wrong.empty() ? 0 : Fault(rank, wrong);
  }
  int AwaitOpen(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kNeverCame, [&] { return Open() == count; });
    return Open();
  }

  int AsyncError(int rank, void* handle, int* error) {
    std::lock_guard lock(mutex_);
    *error = 0;
    return static_cast<Comm*>(handle)->open
               ? 0
               : Fault(rank, "the errors of a communicator that was freed");
  }

  int GroupStart(int rank) {
    std::lock_guard lock(mutex_);
    ++depth_[rank];
    return 0;
  }

  int GroupEnd(int rank) {
    std::unique_lock lock(mutex_);
    if (--depth_[rank] > 0) return 0;
    return Launch(rank, lock);
  }

  int Call(int rank, Op call, void* comm_handle, void* stream) {
    std::unique_lock lock(mutex_);
    const auto& comm = *static_cast<Comm*>(comm_handle);
    auto op = std::make_shared<Op>(call);
    op->group = comm.group;
    op->member = comm.member;
    op->stream = static_cast<Stream*>(stream);
    if (!comm.open) return Fault(rank, "a call on a communicator that was given up");
    if (const int error = op->collective() ? MatchCollective(rank, op) : MatchMessage(rank, op))
      return error;
    open_units_[rank].push_back(op);
    return depth_[rank] > 0 ? 0 : Launch(rank, lock);
  }

  int Record(void* event_handle, void* stream) {
    std::lock_guard lock(mutex_);
    const auto& event = events_.at(event_handle);
    event->done = !IsLink(stream);  // a compute stream of the CPU is never behind
    if (IsLink(stream)) Push(stream, {Item::What::kRecord, 0, {}, event});
    return 0;
  }
  // A compute stream is the thread itself, which therefore waits as its stream would.
  int WaitEvent(int rank, void* stream, void* event) {
    const auto is_link = [&] {
      std::lock_guard lock(mutex_);
      return IsLink(stream);
    };
    while (!is_link()) {
      const int state = Query(rank, event);
      if (state != CudaApi::kNotReady) return state;
      std::this_thread::yield();
    }
    std::lock_guard lock(mutex_);
    Push(stream, {Item::What::kWait, 0, {}, events_.at(event)});
    return 0;
  }
  int Query(int rank, void* event) {
    std::lock_guard lock(mutex_);
    Progress();
    if (events_.at(event)->done) return 0;
    const bool hangs = std::chrono::steady_clock::now() - asked_ > kNeverCame;
    return hangs ? Fault(rank, "hangs: no rank has asked for anything for a minute")
                 : CudaApi::kNotReady;
  }
  int NewEvent(void** handle) {
    std::lock_guard lock(mutex_);
    auto event = std::make_shared<Event>();
    *handle = event.get();
    events_[event.get()] = event;
    return 0;
  }
  int DropEvent(void* handle) {
    std::lock_guard lock(mutex_);
    return events_.erase(handle) == 1 ? 0 : 1;
  }
  int NewStream(int rank, void** handle) {
    std::lock_guard lock(mutex_);
    streams_.push_back(std::make_unique<Stream>(Stream{rank, {}}));
    *handle = streams_.back().get();
    return 0;
  }

  stand_in::PinnedMemory& pinned() { return pinned_; }

  const char* error(int rank) {
    std::lock_guard lock(mutex_);
    return errors_[rank].c_str();
  }
  struct State {
    int open, aborted;
    std::string refused;
  };
  State state() {
    std::lock_guard lock(mutex_);
    return {Open(), aborted_, refused_};
  }

 private:
  int Open() const {
    return static_cast<int>(
        std::count_if(comms_.begin(), comms_.end(), [](const auto& comm) { return comm->open; }));
  }
  bool IsLink(const void* stream) const {
    return std::any_of(streams_.begin(), streams_.end(),
                       [&](const auto& each) { return each.get() == stream; });
  }
  int Fault(int rank, const std::string& text) {
    errors_[rank] = text;
    refused_ += text + "\n";
    return kFault;
  }

  int Differ(int rank, const Op& mine, const Op& theirs) {
    return Fault(rank, Describe(mine) + " does not fit " + Describe(theirs));
  }

  int MatchCollective(int rank, const std::shared_ptr<Op>& op) {
    Group& group = *op->group;
    op->index = group.collectives[op->member].size();
    for (const auto& others : group.collectives) {
      if (others.size() <= op->index) continue;
      const Op& other = *others[op->index];
      if (other.kind != op->kind || other.count != op->count || other.type != op->type ||
          other.argument != op->argument)
        return Differ(rank, *op, other);
    }
    group.collectives[op->member].push_back(op);
    for (const int other : group.ranks) {
      if (other == rank) continue;
      auto& mine = shared_[rank][other];
      const auto& theirs = shared_[other][rank];
      mine.push_back(op.get());
      if (theirs.size() < mine.size()) continue;
      const Op& at = *theirs[mine.size() - 1];
      if (at.group != op->group) {
        return Fault(rank, Describe(*op) + " comes where " + Describe(at) +
                               " came: their common collectives need one order");
      }
    }
    return 0;
  }

  int MatchMessage(int rank, const std::shared_ptr<Op>& op) {
    const bool sending = op->kind == Kind::kSend;
    auto& lane = op->group->lanes[sending ? std::pair(op->member, op->argument)
                                          : std::pair(op->argument, op->member)];
    auto& mine = sending ? lane.sends : lane.receives;
    const auto& theirs = sending ? lane.receives : lane.sends;
    op->index = mine.size();
    if (theirs.size() > op->index) {
      const Op& other = *theirs[op->index];
      if (other.count != op->count || other.type != op->type) return Differ(rank, *op, other);
    }
    mine.push_back(op);
    return 0;
  }

  bool TryRun(const std::shared_ptr<Op>& op) {
    std::set<int> missing;
    const auto partners = Partners(*op, &missing);
    const auto ready = [](const auto& p) { return Live(*p) && !p->finished; };
    if (!missing.empty() || !std::all_of(partners.begin(), partners.end(), ready)) return false;
    if (op->collective()) {
      Execute(partners);
    } else {
      const Op& send = op->kind == Kind::kSend ? *op : *partners[0];
      const Op& receive = op->kind == Kind::kSend ? *partners[0] : *op;
      std::memcpy(receive.out, send.in, Bytes(send));
      op->finished = partners[0]->finished = true;
    }
    return true;
  }

  bool Advance(Stream& stream) {
    if (stream.items.empty()) return false;
    const Item& item = stream.items.front();
    if (!item.given) return false;
    bool moved = false;
    bool over = item.what != Item::What::kWait || item.event->done;
    if (item.what == Item::What::kRecord) item.event->done = true;
    for (const auto& op : item.calls) {
      if (!op->finished) moved |= TryRun(op);
      over &= op->finished;
    }
    if (over) stream.items.pop_front();
    return moved || over;
  }

  void Progress() {
    for (bool moved = true; moved;) {
      moved = false;
      for (stand_in::Queue& queue : queues_) moved |= queue.Give();
      for (const auto& stream : streams_) moved |= Advance(*stream);
    }
    changed_.notify_all();
  }

  void Push(void* stream, Item item) {
    Append(static_cast<Stream*>(stream), std::move(item));
    Progress();
  }
  void Append(Stream* stream, Item item) {
    item.given = queues_.empty();
    stream->items.push_back(std::move(item));
    if (!queues_.empty()) queues_[stream->rank].Push(stream);
    asked_ = std::chrono::steady_clock::now();
  }

  // Puts the calls of a group onto their streams, then blocks where ranks meet for the first time.
  int Launch(int rank, std::unique_lock<std::mutex>& lock) {
    std::map<Stream*, Item> items;
    const auto calls = std::exchange(open_units_[rank], {});
    ++units_;
    for (const auto& op : calls) {
      op->unit = units_;
      Item& item = items[op->stream];
      item.what = Item::What::kCalls;
      item.unit = units_;
      item.calls.push_back(op);
    }
    for (auto& [stream, item] : items) Append(stream, std::move(item));
    Progress();
    for (const auto& [stream, item] : items) {
      std::vector<const Stream*> path;
      if (const std::string circle = Circle(*stream, path); !circle.empty()) {
        return Fault(rank, circle);
      }
    }
    return Meet(rank, calls, lock);
  }

  int Meet(int rank, const std::vector<std::shared_ptr<Op>>& calls,
           std::unique_lock<std::mutex>& lock) {
    meeting_[rank] = calls;
    const bool hangs = HostCircle(rank, rank, {});
    const bool came =
        !hangs && changed_.wait_for(lock, kNeverCame, [&] { return Awaited(rank).empty(); });
    meeting_[rank].clear();
    if (hangs) {
      return Fault(rank, "would hang: " + Describe(*calls.front()) +
                             " connects to a rank that waits for this one: put both transfers "
                             "into one group, or change their order");
    }
    for (const auto& op : calls) {
      if (op->group->aborted[op->member]) return kRemote;
    }
    return came ? 0 : Fault(rank, Describe(*calls.front()) + ": the other rank never came");
  }

  // The ranks for whose first call the host of this rank waits.
  std::set<int> Awaited(int rank) const {
    std::set<int> missing;
    for (const auto& op : meeting_[rank]) {
      if (op->index == 0 && !op->group->aborted[op->member]) Partners(*op, &missing);
    }
    return missing;
  }

  bool HostCircle(int start, int at, std::set<int> seen) const {
    for (const int next : Awaited(at)) {
      if (next == start) return true;
      if (seen.insert(next).second && HostCircle(start, next, seen)) return true;
    }
    return false;
  }

  // Text of a circle of streams whose first calls wait for each other; empty: there is none.
  std::string Circle(const Stream& stream, std::vector<const Stream*>& path) const {
    if (std::find(path.begin(), path.end(), &stream) != path.end()) {
      std::string text = "would hang:";
      for (const Stream* s : path) text += " " + Describe(*s->items.front().calls.front()) + ";";
      return text +
             " each waits for a call behind the next: put the transfers of a rank into one "
             "group, or change their order";
    }
    if (stream.items.empty()) return "";
    path.push_back(&stream);
    for (const auto& op : stream.items.front().calls) {
      if (op->finished) continue;
      for (const auto& partner : Partners(*op)) {
        if (partner->unit == 0 || Live(*partner) || partner->finished) continue;
        if (std::string text = Circle(*partner->stream, path); !text.empty()) return text;
      }
    }
    path.pop_back();
    return "";
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int ids_ = 0;
  int64_t units_ = 0;
  int aborted_ = 0;
  std::string refused_;
  stand_in::DestroyOrder destroyed_;
  std::map<int, std::unique_ptr<Group>> groups_;
  std::vector<std::unique_ptr<Comm>> comms_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<stand_in::Queue> queues_;          // by rank; none: each stream has its own
  std::chrono::steady_clock::time_point asked_;  // for something
  std::map<void*, std::shared_ptr<Event>> events_;
  stand_in::PinnedMemory pinned_;
  // By rank:
  std::vector<std::string> errors_;
  std::vector<std::vector<std::shared_ptr<Op>>> open_units_;  // calls of the open group
  std::vector<int> depth_;
  std::vector<std::vector<std::shared_ptr<Op>>> meeting_;    // calls that its host waits in
  std::vector<std::vector<std::vector<const Op*>>> shared_;  // and by other rank: collectives
};

NcclStandIn::NcclStandIn(int ranks, Queues queues)
    : cluster_(std::make_shared<Cluster>(ranks, queues == Queues::kOne)) {}
NcclStandIn::~NcclStandIn() = default;

int NcclStandIn::OpenCommunicators() const { return cluster_->state().open; }
int NcclStandIn::Aborted() const { return cluster_->state().aborted; }
int NcclStandIn::AwaitOpen(int count) const { return cluster_->AwaitOpen(count); }
std::string NcclStandIn::Refused() const { return cluster_->state().refused; }
int NcclStandIn::PinnedBuffers() const { return cluster_->pinned().buffers(); }
size_t NcclStandIn::MostPinnedBytes() const { return cluster_->pinned().most_bytes(); }

NcclApi NcclStandIn::Api(int rank) {
  const auto c = cluster_;
  NcclApi api;
  api.version = [](int* version) { return *version = 22809, 0; };
  api.new_id = [c](NcclUniqueId* id) { return c->NewId(id); };
  api.init = [c, rank](void** comm, int ranks, NcclUniqueId id, int member) {
    return c->Init(rank, comm, ranks, id, member);
  };
  api.abort = [c](void* comm) { return c->Close(comm, true); };
  api.destroy = [c](void* comm) { return c->Close(comm, false); };
  api.async_error = [c, rank](void* comm, int* error) { return c->AsyncError(rank, comm, error); };
  api.last_error = [c, rank](void*) { return c->error(rank); };
  api.error_text = [](int) { return "refused by the stand-in"; };
  api.group_start = [c, rank] { return c->GroupStart(rank); };
  api.group_end = [c, rank] { return c->GroupEnd(rank); };
  const auto reduction = [c, rank](Kind kind) {
    return [c, rank, kind](const void* in, void* out, size_t n, int type, int op, void* comm,
                           void* stream) {
      return c->Call(rank, {kind, in, out, n, type, op}, comm, stream);
    };
  };
  api.all_reduce = reduction(Kind::kAllReduce);
  api.reduce_scatter = reduction(Kind::kReduceScatter);
  api.broadcast = reduction(Kind::kBroadcast);  // its root in place of the operation
  api.all_gather = [c, rank](const void* in, void* out, size_t n, int type, void* comm, void* s) {
    return c->Call(rank, {Kind::kAllGather, in, out, n, type, 0}, comm, s);
  };
  api.send = [c, rank](const void* in, size_t n, int type, int peer, void* comm, void* s) {
    return c->Call(rank, {Kind::kSend, in, nullptr, n, type, peer}, comm, s);
  };
  api.receive = [c, rank](void* out, size_t n, int type, int peer, void* comm, void* s) {
    return c->Call(rank, {Kind::kReceive, nullptr, out, n, type, peer}, comm, s);
  };
  CudaApi& cuda = api.cuda;
  cuda.device = rank;
  cuda.device_count = [](int* count) { return *count = 1, 0; };  // each rank sees its own alone
  cuda.device_id = [rank](char* id, int length, int) {
    std::snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", rank);
    return 0;
  };
  cuda.set_device = [rank](int device) { return device == rank ? 0 : 1; };
  cuda.stream_create = [c, rank](void** stream, unsigned) { return c->NewStream(rank, stream); };
  cuda.stream_destroy = [](void*) { return 0; };
  cuda.stream_synchronize = [](void* stream) { return stream == nullptr ? 0 : 1; };
  cuda.stream_wait_event = [c, rank](void* s, void* event, unsigned) {
    return c->WaitEvent(rank, s, event);
  };
  cuda.event_create = [c](void** event, unsigned) { return c->NewEvent(event); };
  cuda.event_destroy = [c](void* event) { return c->DropEvent(event); };
  cuda.event_record = [c](void* event, void* stream) { return c->Record(event, stream); };
  cuda.event_query = [c, rank](void* event) { return c->Query(rank, event); };
  cuda.host_alloc = [c](void** data, size_t bytes, unsigned) {
    return c->pinned().Pin(data, bytes);
  };
  cuda.host_free = [c](void* data) { return c->pinned().Unpin(data); };
  cuda.copy = [c](void* to, const void* from, size_t bytes, int kind, void* stream) {
    return stream == nullptr ? c->pinned().Copy(to, from, bytes, kind) : 1;
  };
  cuda.error_text = [](int) { return "refused by the stand-in"; };
  return api;
}

}  // namespace equipoise
