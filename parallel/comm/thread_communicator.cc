#include "parallel/comm/thread_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "configs/base/error.h"
#include "parallel/comm/engine.h"
#include "parallel/comm/group_communicator.h"
#include "parallel/comm/single_communicator.h"
#include "parallel/comm/transport.h"
#include "parallel/comm/wake_event.h"

namespace equipoise {
namespace {

using Clock = std::chrono::steady_clock;
using Key = std::tuple<int, int, bool, int64_t>;  // source, group, point to point, sequence

// One end of a message: a send or a receive, which waits for the other.
struct End {
  int rank;
  void* data;
  size_t bytes;
  std::atomic<bool> done{false};
  size_t other_bytes = 0;  // set before done
};

// The sends and receives that wait at one receiver.
struct Mailbox {
  std::mutex mutex;
  std::map<Key, std::list<std::shared_ptr<End>>> sends, receives;
};

struct Hub {
  explicit Hub(int ranks)
      : mailboxes(ranks), wake_events(ranks), views(ranks, {{}, Clock::now()}) {}
  std::vector<Mailbox> mailboxes;      // by receiver
  std::vector<WakeEvent> wake_events;  // by rank
  std::mutex mutex;                    // guards views
  RankViews views;
};

class ThreadRequest : public TransportRequest {
 public:
  ThreadRequest(std::shared_ptr<Hub> hub, int receiver, Key key, std::shared_ptr<End> end)
      : hub_(std::move(hub)), receiver_(receiver), key_(std::move(key)), end_(std::move(end)) {}

  ~ThreadRequest() override {
    if (end_->done) return;
    Mailbox& box = hub_->mailboxes[receiver_];
    std::lock_guard lock(box.mutex);
    for (auto* waiting : {&box.sends, &box.receives}) {
      const auto entry = waiting->find(key_);
      if (entry != waiting->end()) entry->second.remove(end_);
    }
  }

  bool Done() override {
    if (!end_->done) return false;
    if (end_->bytes == end_->other_bytes) return true;
    const bool sender = end_->rank != receiver_;
    throw RunError(fmt::format("rank {} sends {} bytes where rank {} expects {}", std::get<0>(key_),
                               sender ? end_->bytes : end_->other_bytes, receiver_,
                               sender ? end_->other_bytes : end_->bytes));
  }

 private:
  std::shared_ptr<Hub> hub_;
  int receiver_;
  Key key_;
  std::shared_ptr<End> end_;
};

class ThreadTransport : public Transport {
 public:
  ThreadTransport(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hub_->wake_events.size()); }

  std::unique_ptr<TransportRequest> Send(int peer, const Tag& tag, const void* data,
                                         size_t bytes) override {
    return Meet(peer, {rank_, tag.group, tag.point_to_point, tag.sequence},
                NewEnd(const_cast<void*>(data), bytes));
  }

  std::unique_ptr<TransportRequest> Recv(int peer, const Tag& tag, void* data,
                                         size_t bytes) override {
    return Meet(rank_, {peer, tag.group, tag.point_to_point, tag.sequence}, NewEnd(data, bytes));
  }

  void Publish(const RankStatus& status) override {
    {
      std::lock_guard lock(hub_->mutex);
      hub_->views[rank_] = {status, Clock::now()};
    }
    if (status.phase == RankStatus::Phase::kRunning) return;
    for (WakeEvent& wake_event : hub_->wake_events) wake_event.Notify();
  }

  void Collect(RankViews& views) override {
    std::lock_guard lock(hub_->mutex);
    for (size_t rank = 0; rank < views.size(); ++rank) {
      // Never backwards: the engine forwards the time after a pause of its own.
      views[rank].status = hub_->views[rank].status;
      views[rank].heard = std::max(views[rank].heard, hub_->views[rank].heard);
    }
  }

  bool Notifies() const override { return true; }
  void Sleep(std::chrono::microseconds limit) override { hub_->wake_events[rank_].Sleep(limit); }
  void Wake() override { hub_->wake_events[rank_].Notify(); }

 private:
  std::shared_ptr<End> NewEnd(void* data, size_t bytes) const {
    auto end = std::make_shared<End>();
    end->rank = rank_;
    end->data = data;
    end->bytes = bytes;
    return end;
  }

  // The end that arrives second copies, from the sender's tensor straight into the receiver's.
  std::unique_ptr<TransportRequest> Meet(int receiver, const Key& key, std::shared_ptr<End> mine) {
    Mailbox& box = hub_->mailboxes[receiver];
    const bool sending = receiver != rank_;
    std::lock_guard lock(box.mutex);
    auto& others = (sending ? box.receives : box.sends)[key];
    if (others.empty()) {
      (sending ? box.sends : box.receives)[key].push_back(mine);
    } else {
      const std::shared_ptr<End> other = others.front();
      others.pop_front();
      Exchange(sending ? *mine : *other, sending ? *other : *mine);
      hub_->wake_events[other->rank].Notify();
    }
    if (others.empty()) (sending ? box.receives : box.sends).erase(key);
    return std::make_unique<ThreadRequest>(hub_, receiver, key, std::move(mine));
  }

  static void Exchange(End& from, End& to) {
    if (from.bytes == to.bytes && from.bytes > 0) std::memcpy(to.data, from.data, from.bytes);
    from.other_bytes = to.bytes;
    to.other_bytes = from.bytes;
    from.done = true;
    to.done = true;
  }

  std::shared_ptr<Hub> hub_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(int ranks, CommOptions options) {
  EQUIPOISE_CHECK(ranks >= 1, ranks, " ranks");
  std::vector<std::unique_ptr<Communicator>> world;
  if (ranks == 1) {
    world.push_back(std::make_unique<SingleCommunicator>());
    return world;
  }
  const auto hub = std::make_shared<Hub>(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    world.push_back(std::make_unique<GroupCommunicator>(
        std::make_shared<Engine>(std::make_unique<ThreadTransport>(hub, rank), options),
        GroupCommunicator::Everyone::kWorld));
  }
  return world;
}

}  // namespace equipoise
