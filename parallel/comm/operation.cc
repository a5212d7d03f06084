#include "parallel/comm/operation.h"

#include <algorithm>

#include "configs/base/error.h"
#include "parallel/comm/already_reported_error.h"

namespace equipoise {

void Operation::Wait() {
  std::unique_lock lock(mutex_);
  waited_for_ = true;
  if (!done_) {
    lock.unlock();
    drive_(*this);
    lock.lock();
  }
  ended_.wait(lock, [this] { return done_; });
  waited_for_ = false;
  if (error_.empty()) return;
  if (reported_) throw AlreadyReportedError(error_);
  throw RunError(error_);
}

bool Operation::Done() const {
  std::lock_guard lock(mutex_);
  return done_;
}

Operation::Clock::time_point Operation::FinishedAt() const {
  std::lock_guard lock(mutex_);
  return finished_;
}

bool Operation::waited_for() const {
  std::lock_guard lock(mutex_);
  return waited_for_;
}

bool Operation::only_receives() const {
  return plan_.tag.point_to_point &&
         std::all_of(requests_.begin(), requests_.end(), [](const Pending& pending) {
           return pending.direction == Transfer::Direction::kReceive;
         });
}

void Operation::Start(Transport& transport, at::Tensor staging) {
  staging_ = std::move(staging);
  BeginPhase(transport);
}

void Operation::BeginPhase(Transport& transport) {
  progressed_ = Clock::now();
  transfers_.clear();
  if (plan_.watch && phase_++ == 0) {
    requests_.push_back({Transfer::Direction::kReceive, plan_.awaited.front(), plan_.watch()});
    return;
  }
  auto* staging = staging_.defined() ? static_cast<std::byte*>(staging_.data_ptr()) : nullptr;
  if (!plan_.next || !plan_.next(phase_++, staging, transfers_)) {
    complete_ = true;
    return;
  }
  // Sends start first: a receive whose message is already there may copy all of it at once, while
  // the peer waits for ours. In the list of requests receives come first.
  for (const auto direction : {Transfer::Direction::kSend, Transfer::Direction::kReceive}) {
    const auto begin = requests_.size();
    for (const Transfer& t : transfers_) {
      if (t.direction != direction) continue;
      requests_.push_back({direction, t.peer,
                           direction == Transfer::Direction::kSend
                               ? transport.Send(t.peer, plan_.tag, t.data, t.bytes)
                               : transport.Recv(t.peer, plan_.tag, t.data, t.bytes)});
    }
    std::rotate(requests_.begin(), requests_.begin() + static_cast<int64_t>(begin),
                requests_.end());
  }
}

bool Operation::Advance(Transport& transport) {
  bool progressed = false;
  while (!complete_) {
    const size_t erased =
        std::erase_if(requests_, [](const Pending& p) { return p.request->Done(); });
    if (erased > 0) {
      progressed_ = Clock::now();  // a peer has answered, or some of the data is there
      progressed = true;
    }
    if (!requests_.empty()) break;
    BeginPhase(transport);
    progressed = true;
  }
  return progressed;
}

int Operation::waiting_for() const {
  // Receives come first: a peer that has not sent says more than one that has not received.
  return requests_.empty() ? -1 : requests_.front().peer;
}

void Operation::Cancel() {
  requests_.clear();
  if (plan_.watch) plan_.watch();  // aborts it, also where it was never started
}

void Operation::Finish(const std::string& error, bool reported) {
  // The tensors of a failed operation stay: a transfer may still reach into them.
  if (error.empty()) {
    DropTensors();
    plan_.watch = nullptr;
  }
  {
    std::lock_guard lock(mutex_);
    done_ = true;
    error_ = error;
    reported_ = reported;
    finished_ = Clock::now();
  }
  ended_.notify_all();
}

void Operation::DropTensors() {
  std::vector<at::Tensor> dropped;  // freed without the mutex
  std::lock_guard lock(mutex_);
  dropped.swap(plan_.tensors);
}

}  // namespace equipoise
