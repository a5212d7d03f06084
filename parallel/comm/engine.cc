// One loop, Step(), progresses all operations and detects failures; driving_ makes it exclusive,
// whichever thread runs it: the compute thread while it waits (Drive()), else the communication
// thread (Run()). A step starts submitted operations, polls the active ones, receives statuses, and
// only then judges deadlines and lost ranks, so that data which has arrived is never taken for
// missing.
//
// Invariants. An operation is in taken_, active_, a queue of collectives_ or done. The front of
// each queue of collectives_ is the only active collective of its group. The phase of status_ only
// ascends (running, failed, leaving or left); the first failure is kept, is published at once, and
// fails every operation of this rank, so that all ranks end with the same faulty rank. Operations
// are cancelled last, when those who wait have been woken and the other ranks told: that may end
// operations of theirs. A step costs O(active operations + ranks).

#include "parallel/comm/engine.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Phase = RankStatus::Phase;

// Longest sleep of an idle thread: the time in which a failure elsewhere is noticed.
constexpr milliseconds kIdle{20};
// Longest sleep while a GPU works, whose end wakes nobody.
constexpr microseconds kWatch{200};
// For how long a send on a GPU may outlast the rank that has received it.
constexpr milliseconds kSendEnds{1000};
// Pauses between two polls of a transport that does not notify: the first, and the longest; in
// between as long as nothing has arrived for. A poll takes the core from the compute thread for
// some 20 us, so that pauses of 200 us cost 9 % of a core.
constexpr microseconds kShortest{50}, kLongest{200};
// Longest pause while only receives that were posted early are outstanding: the rank computes.
constexpr microseconds kLongestEarly{2000};
// How long a waiting thread polls without a pause: longer than waking it would take, too short for
// ranks that share its core to suffer.
constexpr microseconds kSpin{500};

std::string Name(int rank) { return fmt::format("rank {}", rank); }

}  // namespace

Engine::Engine(std::unique_ptr<Transport> transport, CommOptions options)
    : transport_(std::move(transport)),
      options_(options),
      rank_(transport_->rank()),
      size_(transport_->size()),
      heartbeat_interval_(std::clamp(options.timeout / 20, milliseconds(50), milliseconds(1000))),
      liveness_limit_(std::clamp(options.timeout / 2, milliseconds(500), milliseconds(10000))),
      views_(size_, RankView{RankStatus{}, Clock::now()}),
      next_heartbeat_(Clock::now()),
      last_step_(Clock::now()),
      last_progress_(Clock::now()),
      thread_([this] { Run(); }) {}

void Engine::Stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  transport_->Wake();
  thread_.join();
}

std::shared_ptr<Operation> Engine::Submit(CollectiveSteps plan) {
  auto operation = std::make_shared<Operation>(std::move(plan),
                                               [this](const Operation& waited) { Drive(waited); });
  {
    std::lock_guard lock(mutex_);
    submitted_.push_back(operation);
  }
  std::unique_lock lock(driving_, std::defer_lock);
  if (MovesAlone(*operation) || !lock.try_lock()) {
    transport_->Wake();
  } else {
    Guard([this] { return TakeSubmitted(); });
  }
  return operation;
}

// Whether an operation progresses by itself: on a GPU, or over a transport that notifies.
bool Engine::MovesAlone(const Operation& operation) const {
  return transport_->Notifies() || !operation.awaited().empty();
}

void Engine::ProgressInBackground() {
  if (transport_->Notifies()) return;
  std::unique_lock lock(driving_, std::try_to_lock);
  // Locked: the communication thread is awake and may be about to sleep for long.
  if (!lock.owns_lock() || !active_.empty()) transport_->Wake();
}

void Engine::Announce(const std::string& compute) {
  std::lock_guard lock(computes_mutex_);
  computes_ = compute;
}

Engine::ExitStatus Engine::Leave(const ExitReport& report, milliseconds grace) {
  std::unique_lock lock(mutex_);
  leaving_ = true;
  exit_report_ = report;
  transport_->Wake();
  left_.wait_for(lock, grace, [this] { return others_ready_; });
  return {exit_report_.exit_code, root_reported_};
}

void Engine::Run() {
  for (bool stopping = false; !stopping;) {
    {
      std::lock_guard lock(mutex_);
      stopping = stopping_;
    }
    const microseconds pause = drivers_ > 0 ? kIdle : Round();
    if (pause > microseconds(0)) transport_->Sleep(pause);
  }
  std::lock_guard lock(driving_);
  if (!active_.empty() || !collectives_.empty()) {
    Fail({rank_, "this rank has left while it was under way"}, "");
  }
  if (status_.phase == Phase::kRunning) status_.phase = Phase::kLeft;
  Guard([this] {
    transport_->Publish(status_);
    return true;
  });
  CancelFailed();
}

// Progresses operations on the waiting thread.
void Engine::Drive(const Operation& operation) {
  if (MovesAlone(operation)) return;
  ++drivers_;
  auto progress = Clock::now();
  while (!operation.Done()) {
    const microseconds pause = Round();
    const auto now = Clock::now();
    if (pause == microseconds(0)) {
      progress = now;
    } else if (now - progress < kSpin) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(pause);
    }
  }
  --drivers_;
}

// Does what can be done now. Returns how long to sleep before the next round; 0 when anything
// happened.
microseconds Engine::Round() {
  std::lock_guard lock(driving_);
  const auto now = Clock::now();
  const bool progressed = Guard([this] { return Step(); });
  if (publish_now_) {  // the step has failed before it came to that
    Guard([&] {
      SendHeartbeat(now);
      return true;
    });
  }
  CancelFailed();
  if (!progressed) return Pause(now);
  last_progress_ = now;
  return microseconds(0);
}

// Runs a step; an error of the transport (a lost connection) is this rank's failure, and may recur
// while the rank reports it.
bool Engine::Guard(const std::function<bool()>& step) {
  try {
    return step();
  } catch (const c10::Error& error) {
    if (status_.phase == Phase::kRunning) Fail({rank_, error.what_without_backtrace()}, "");
  } catch (const std::exception& error) {
    if (status_.phase == Phase::kRunning) Fail({rank_, error.what()}, "");
  }
  return false;
}

// Returns whether anything happened.
bool Engine::Step() {
  const auto now = Clock::now();
  ForgiveLostTime(now);
  bool progressed = TakeSubmitted();
  progressed |= AdvanceAll();
  transport_->Collect(views_);
  // A rank that has left sent its last data before its last status: receive that before blaming it.
  progressed |= AdvanceAll();
  CheckOthers(now);
  CheckDeadlines(now);
  UpdateLeaving(now);
  EndIfStuck(now);
  SendHeartbeat(now);
  return progressed;
}

microseconds Engine::Pause(Clock::time_point now) const {
  const microseconds longest = AnyWatched() ? kWatch : kIdle;
  if (active_.empty() || transport_->Notifies()) return longest;
  const bool early = std::all_of(active_.begin(), active_.end(), [](const auto& operation) {
    return operation->only_receives() && !operation->waited_for();
  });
  const auto since = std::chrono::duration_cast<microseconds>(now - last_progress_);
  return std::min(longest, std::clamp(since, kShortest, early ? kLongestEarly : kLongest));
}

// A process that was itself stopped must not blame other ranks for that time.
void Engine::ForgiveLostTime(Clock::time_point now) {
  const auto lost = now - std::exchange(last_step_, now);
  if (lost < liveness_limit_ / 2) return;
  for (RankView& view : views_) view.heard += lost;
  for (const auto& operation : active_) operation->Forgive(lost);
}

bool Engine::TakeSubmitted() {
  {
    std::lock_guard lock(mutex_);
    taken_.insert(taken_.end(), submitted_.begin(), submitted_.end());
    submitted_.clear();
  }
  const bool any = !taken_.empty();
  while (!taken_.empty()) {
    // Out of the list first: if it cannot start, other ranks learn of it in the next round.
    const std::shared_ptr<Operation> operation = std::move(taken_.front());
    taken_.pop_front();
    entered_ = operation->text();
    if (status_.phase != Phase::kRunning) {
      FailOne(operation);
    } else if (operation->tag().point_to_point) {
      Start(operation);
    } else {
      if (!operation->awaited().empty()) {
        status_.Enter(operation->tag().group, operation->tag().sequence);
      }
      auto& queue = collectives_[operation->tag().group];
      queue.push_back(operation);
      if (queue.size() == 1) Start(operation);
    }
  }
  return any;
}

void Engine::Start(const std::shared_ptr<Operation>& operation) {
  active_.push_back(operation);  // first: Fail() must find it
  operation->Start(*transport_, Staging(operation->staging_bytes()));
}

at::Tensor Engine::Staging(size_t bytes) {
  if (bytes == 0) return {};
  for (auto it = staging_.begin(); it != staging_.end(); ++it) {
    if (static_cast<size_t>(it->numel()) < bytes) continue;
    at::Tensor found = std::move(*it);
    staging_.erase(it);
    return found;
  }
  if (!staging_.empty()) staging_.pop_back();  // too small: replaced by a larger one
  return at::empty({static_cast<int64_t>(bytes)}, at::kByte);
}

bool Engine::AdvanceAll() {
  bool progressed = false;
  for (size_t i = 0; i < active_.size();) {
    const std::shared_ptr<Operation> operation = active_[i];
    progressed |= operation->Advance(*transport_);
    if (!operation->complete()) {
      ++i;
      continue;
    }
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    Complete(operation);
  }
  return progressed;
}

void Engine::Complete(const std::shared_ptr<Operation>& operation) {
  if (at::Tensor staging = operation->TakeStaging(); staging.defined()) {
    staging_.push_back(std::move(staging));
  }
  operation->Finish("");
  if (!operation->tag().point_to_point) {
    const auto entry = collectives_.find(operation->tag().group);
    entry->second.pop_front();
    if (entry->second.empty()) {
      collectives_.erase(entry);
    } else {
      Start(entry->second.front());
    }
  }
}

void Engine::CheckDeadlines(Clock::time_point now) {
  for (const auto& operation : active_) {
    if (now - operation->progressed() < options_.timeout) continue;
    Fail(Explain(*operation, now), "");
    return;
  }
}

bool Engine::AnyWatched() const {
  return std::any_of(active_.begin(), active_.end(),
                     [](const auto& operation) { return !operation->awaited().empty(); });
}

// A member that has not given this collective to its GPU, preferably one that has failed or left;
// -1 when all have. A collective on GPUs has no messages that show who is missing; the statuses do.
int Engine::Behind(const Operation& operation) const {
  const Tag& tag = operation.tag();
  int found = -1;
  for (const int rank : operation.awaited()) {
    const RankStatus& status = views_[rank].status;
    if (status.CollectivesOf(tag.group) >= tag.sequence) continue;
    if (status.phase != Phase::kRunning) return rank;
    if (found < 0) found = rank;
  }
  return found;
}

int Engine::WaitingFor(const Operation& operation) const {
  const bool watched_collective = !operation.awaited().empty() && !operation.tag().point_to_point;
  return watched_collective ? Behind(operation) : operation.waiting_for();
}

FailureReport Engine::Explain(const Operation& operation, Clock::time_point now) const {
  const int peer = WaitingFor(operation);
  if (peer >= 0) return ExplainWait(rank_, peer, views_, LivenessAt(now));
  return {-1, fmt::format("every rank has entered it, and no progress for {}: sizes differ between "
                          "ranks, or a GPU or the network hangs",
                          Seconds(now - operation.progressed()))};
}

void Engine::CheckOthers(Clock::time_point now) {
  if (status_.phase != Phase::kRunning) return;
  for (int rank = 0; rank < size_; ++rank) {
    const RankStatus& status = views_[rank].status;
    if (rank == rank_ || (status.phase != Phase::kFailed && status.phase != Phase::kLeaving))
      continue;
    reported_for_all_ = status.for_all;
    Fail({status.faulty_rank, status.failure}, status.faulty_rank == rank ? "" : Name(rank));
    return;
  }
  for (const auto& operation : active_) {
    const int peer = WaitingFor(*operation);
    if (peer < 0 || views_[peer].status.phase != Phase::kLeft) continue;
    // A send on a GPU may end a moment after its receive, with which the peer has left.
    const bool on_gpu = !operation->awaited().empty() && operation->tag().point_to_point;
    if (on_gpu && now - views_[peer].heard < kSendEnds) continue;
    Fail(ExplainWait(rank_, peer, views_, LivenessAt(now)), "");
    return;
  }
}

Liveness Engine::LivenessAt(Clock::time_point now) const { return {now, liveness_limit_}; }

void Engine::Fail(const FailureReport& failure, const std::string& noticed_by) {
  RefreshStatus();
  if (status_.phase == Phase::kRunning) failed_at_ = Clock::now();
  status_.phase = Phase::kFailed;
  status_.faulty_rank = failure.faulty_rank;
  SetText(status_.failure, failure.text);
  noticed_by_ = noticed_by;
  publish_now_ = true;
  for (const auto& operation : active_) FailOne(operation);
  active_.clear();
  for (auto& [group, queue] : collectives_) {
    for (const auto& operation : queue) {
      if (!operation->Done()) FailOne(operation);
    }
  }
  collectives_.clear();
}

// "rank 0: all_reduce #17 in group data (4.0 MiB): no answer from rank 3 for 600.0 s: rank 3 has
// ..."
void Engine::FailOne(const std::shared_ptr<Operation>& operation) {
  failed_.push_back(operation);
  std::string text = fmt::format("{}: {}: ", Name(rank_), operation->text());
  if (const int peer = WaitingFor(*operation); peer >= 0 && status_.faulty_rank != rank_) {
    text += fmt::format("no answer from {} for {}: ", Name(peer),
                        Seconds(Clock::now() - operation->progressed()));
  }
  text += status_.failure;
  if (!noticed_by_.empty()) text += fmt::format(" ({} gave up first)", noticed_by_);
  operation->Finish(text, IsReported());
}

void Engine::CancelFailed() {
  for (; cancelled_ < failed_.size(); ++cancelled_) failed_[cancelled_]->Cancel();
}

// Whether this rank need not report the failure: the other ranks have named it as the faulty one,
// or one rank's report covers all.
bool Engine::IsReported() const {
  return reported_for_all_ || (status_.faulty_rank == rank_ && !noticed_by_.empty());
}

void Engine::RefreshStatus() {
  if (status_.phase != Phase::kRunning) return;
  const Operation* waited = nullptr;
  for (const auto& operation : active_) {
    if (operation->waited_for()) waited = operation.get();
  }
  for (const auto& [group, queue] : collectives_) {
    for (const auto& operation : queue) {
      if (!waited && operation->waited_for()) waited = queue.front().get();
    }
  }
  status_.waiting_for = waited ? WaitingFor(*waited) : -1;
  // All members have entered it: still waiting, not computing.
  if (waited && status_.waiting_for < 0 && !waited->awaited().empty()) {
    status_.waiting_for = waited->awaited().front();
  }
  SetText(status_.doing, waited ? waited->text() : entered_);
  std::lock_guard lock(computes_mutex_);
  SetText(status_.computes, computes_);
}

void Engine::SendHeartbeat(Clock::time_point now) {
  if (!publish_now_ && now < next_heartbeat_) return;
  publish_now_ = false;
  next_heartbeat_ = now + heartbeat_interval_;
  RefreshStatus();
  transport_->Publish(status_);
}

// A rank in no wait of this engine does not learn of a failure, and may never end by itself.
void Engine::EndIfStuck(Clock::time_point now) {
  if (status_.phase != Phase::kFailed || called_stuck_ || options_.stuck == nullptr) return;
  if (now - failed_at_ < options_.stuck_after) return;
  called_stuck_ = true;
  options_.stuck(rank_, status_.failure);
}

void Engine::UpdateLeaving(Clock::time_point now) {
  std::lock_guard lock(mutex_);
  if (!leaving_ || others_ready_) return;
  if (status_.phase != Phase::kLeaving) {
    for (const RankView& view : views_) {
      if (view.status.phase == Phase::kLeaving) exit_report_.exit_code = view.status.exit_code;
    }
    if (status_.phase == Phase::kRunning)
      Fail({rank_, fmt::format("{} failed: {}", Name(rank_), exit_report_.message)}, "");
    status_.phase = Phase::kLeaving;
    status_.exit_code = exit_report_.exit_code;
    status_.for_all = exit_report_.for_all;
    publish_now_ = true;
    return;
  }
  root_reported_ = rank_ == 0 || views_[0].status.phase == Phase::kLeaving;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_ || rank == status_.faulty_rank) continue;
    const RankView& view = views_[rank];
    const bool ready = view.status.phase == Phase::kLeaving || view.status.phase == Phase::kLeft;
    if (!ready && now - view.heard < liveness_limit_) return;
  }
  others_ready_ = true;
  left_.notify_all();
}

}  // namespace equipoise
