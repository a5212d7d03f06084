#include "parallel/comm/engine.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Phase = RankStatus::Phase;

// How long an idle thread sleeps at most: the time in which a failure elsewhere is noticed.
constexpr milliseconds kIdle{20};
// The same while a GPU works, which wakes nobody.
constexpr microseconds kWatch{200};
// Between two looks at transfers of a transport that rings none: at first, then as long as nothing
// has come for. A look takes the core from the compute thread for some 20 microseconds, so that 200
// between them cost 9 % of a core.
constexpr microseconds kShortest{50}, kLongest{200};
// The same while only receives wait that were posted early: the rank computes meanwhile.
constexpr microseconds kLongestEarly{2000};
// How long a thread that waits looks without a pause: longer than waking it would take, too short
// for ranks that share its core to suffer.
constexpr microseconds kSpin{500};

std::string Name(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

Engine::Engine(std::unique_ptr<Transport> transport, CommOptions options)
    : transport_(std::move(transport)),
      options_(options),
      rank_(transport_->rank()),
      size_(transport_->size()),
      beat_(std::clamp(options.timeout / 20, milliseconds(50), milliseconds(1000))),
      liveness_limit_(std::clamp(options.timeout / 2, milliseconds(500), milliseconds(10000))),
      views_(size_, RankView{RankStatus{}, Clock::now()}),
      next_beat_(Clock::now()),
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

// Whether it needs nobody to move its bytes: a GPU does it, or a transport that rings.
bool Engine::MovesAlone(const Operation& operation) const {
  return transport_->Notifies() || !operation.awaited().empty();
}

void Engine::ProgressInBackground() {
  if (transport_->Notifies()) return;
  std::unique_lock lock(driving_, std::try_to_lock);
  // Not to be had: the thread is awake and may be about to sleep for long.
  if (!lock.owns_lock() || !active_.empty()) transport_->Wake();
}

void Engine::Announce(const std::string& compute) {
  std::lock_guard lock(computes_mutex_);
  computes_ = compute;
}

Engine::ExitStatus Engine::Leave(const ExitReport& word, milliseconds grace) {
  std::unique_lock lock(mutex_);
  leaving_ = true;
  word_ = word;
  transport_->Wake();
  left_.wait_for(lock, grace, [this] { return others_ready_; });
  return {word_.exit_code, heard_};
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
}

// On the thread that waits.
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

// Does what can be done now. How long to sleep before the next look; 0 when anything has happened.
microseconds Engine::Round() {
  std::lock_guard lock(driving_);
  const auto now = Clock::now();
  if (!Guard([this] { return Step(); })) return Pause(now);
  last_progress_ = now;
  return microseconds(0);
}

// The transport's own errors (a lost connection) are this rank's failure, and may come again and
// again while it reports them.
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

// Whether anything has happened.
bool Engine::Step() {
  const auto now = Clock::now();
  ForgiveLostTime(now);
  bool progressed = TakeSubmitted();
  progressed |= AdvanceAll();
  transport_->Collect(views_);
  // A rank that has left sent its last data before: take that in before it is missed.
  progressed |= AdvanceAll();
  CheckOthers(now);
  CheckDeadlines(now);
  UpdateLeaving(now);
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

// A process that was itself stopped must not blame the others for the time it slept.
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
    // Out of the list first: where it cannot start, the others are told in the next round.
    const std::shared_ptr<Operation> operation = std::move(taken_.front());
    taken_.pop_front();
    entered_ = operation->text();
    if (status_.phase != Phase::kRunning) {
      FailOne(*operation);
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

// The member that has not handed this collective to its GPU, one that has ended before others; -1
// when all have. No message of a watched collective tells who is missing: the ranks' status does.
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
  return {-1, "every rank has entered it, and no progress for " +
                  Seconds(now - operation.progressed()) +
                  ": sizes differ between ranks, or a GPU or the network hangs"};
}

void Engine::CheckOthers(Clock::time_point now) {
  if (status_.phase != Phase::kRunning) return;
  for (int rank = 0; rank < size_; ++rank) {
    const RankStatus& status = views_[rank].status;
    if (rank == rank_ || (status.phase != Phase::kFailed && status.phase != Phase::kLeaving))
      continue;
    told_for_all_ = status.for_all;
    Fail({status.faulty_rank, status.verdict}, status.faulty_rank == rank ? "" : Name(rank));
    return;
  }
  for (const auto& operation : active_) {
    const int peer = WaitingFor(*operation);
    if (peer < 0 || views_[peer].status.phase != Phase::kLeft) continue;
    Fail(ExplainWait(rank_, peer, views_, LivenessAt(now)), "");
    return;
  }
}

Liveness Engine::LivenessAt(Clock::time_point now) const { return {now, liveness_limit_}; }

void Engine::Fail(const FailureReport& verdict, const std::string& by) {
  RefreshStatus();
  status_.phase = Phase::kFailed;
  status_.faulty_rank = verdict.faulty_rank;
  SetText(status_.verdict, verdict.text);
  by_ = by;
  publish_now_ = true;
  for (const auto& operation : active_) {
    FailOne(*operation);
    operation->Cancel();
    failed_.push_back(operation);
  }
  active_.clear();
  for (auto& [group, queue] : collectives_) {
    for (const auto& operation : queue) {
      if (!operation->Done()) FailOne(*operation);
    }
  }
  collectives_.clear();
}

// "rank 0: all_reduce #17 in group data (4.0 MiB): no answer from rank 3 for 600.0 s: rank 3 has
// ..."
void Engine::FailOne(Operation& operation) {
  std::string text = Name(rank_) + ": " + operation.text() + ": ";
  if (const int peer = WaitingFor(operation); peer >= 0 && status_.faulty_rank != rank_) {
    text += "no answer from " + Name(peer) + " for " +
            Seconds(Clock::now() - operation.progressed()) + ": ";
  }
  text += status_.verdict;
  if (!by_.empty()) text += " (" + by_ + " gave up first)";
  operation.Finish(text, Told());
}

// Whether this rank has nothing to add: the others have named it, and told what they saw of it, or
// one has spoken for all.
bool Engine::Told() const {
  return told_for_all_ || (status_.faulty_rank == rank_ && !by_.empty());
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
  // All have entered: still not computing.
  if (waited && status_.waiting_for < 0 && !waited->awaited().empty()) {
    status_.waiting_for = waited->awaited().front();
  }
  SetText(status_.doing, waited ? waited->text() : entered_);
  std::lock_guard lock(computes_mutex_);
  SetText(status_.computes, computes_);
}

void Engine::SendHeartbeat(Clock::time_point now) {
  if (!publish_now_ && now < next_beat_) return;
  publish_now_ = false;
  next_beat_ = now + beat_;
  RefreshStatus();
  transport_->Publish(status_);
}

void Engine::UpdateLeaving(Clock::time_point now) {
  std::lock_guard lock(mutex_);
  if (!leaving_ || others_ready_) return;
  if (status_.phase != Phase::kLeaving) {
    for (const RankView& view : views_) {
      if (view.status.phase == Phase::kLeaving) word_.exit_code = view.status.exit_code;
    }
    if (status_.phase == Phase::kRunning)
      Fail({rank_, Name(rank_) + " failed: " + word_.message}, "");
    status_.phase = Phase::kLeaving;
    status_.exit_code = word_.exit_code;
    status_.for_all = word_.for_all;
    publish_now_ = true;
    return;
  }
  heard_ = rank_ == 0 || views_[0].status.phase == Phase::kLeaving;
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
