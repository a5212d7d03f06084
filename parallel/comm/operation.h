#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/transport.h"

namespace equipoise {

// One message of an operation.
struct Transfer {
  enum class Direction { kSend, kReceive };
  Direction direction;
  int peer;  // rank in the world
  std::byte* data;
  size_t bytes;
};

// An operation as a list of phases. All transfers of a phase run at once; the next phase begins
// when they are done.
struct CollectiveSteps {
  std::string text;  // "all_reduce #17 in group data (4.0 MiB)"
  Tag tag;
  size_t staging_bytes = 0;
  std::vector<at::Tensor> tensors;  // kept alive while the operation runs
  // Does the local work that follows phase `phase - 1` and lists the transfers of phase `phase`;
  // false when there is none left. Called by whichever thread drives the engine, phase = 0, 1, ...
  std::function<bool(int64_t phase, std::byte* staging, std::vector<Transfer>& transfers)> next;
  // In place of `next`: work that a GPU does and that is only watched here, and the ranks of the
  // world that it needs: one peer, or all other members of the group. Each call gives another hold
  // on the work; one that is destroyed before it was done gives the work up.
  std::function<std::unique_ptr<TransportRequest>()> watch;
  std::vector<int> awaited;
};

// An operation on its way through an Engine. The compute thread sees Wait() and Done(); all else
// belongs to whichever thread drives the engine.
class Operation : public Work::State {
 public:
  using Clock = Work::Clock;
  // `drive` is called when a thread begins to wait for this operation: it hastens it, and may
  // return before its end.
  using Drive = std::function<void(const Operation&)>;
  Operation(CollectiveSteps plan, Drive drive) : plan_(std::move(plan)), drive_(std::move(drive)) {}

  void Wait() override;
  bool Done() const override;
  Clock::time_point FinishedAt() const override;

  // Whether the compute thread is inside Wait().
  bool waited_for() const;
  const std::string& text() const { return plan_.text; }
  const Tag& tag() const { return plan_.tag; }
  size_t staging_bytes() const { return plan_.staging_bytes; }
  // Empty when the engine moves the bytes itself.
  const std::vector<int>& awaited() const { return plan_.awaited; }

  // Begins the first phase. `staging` has staging_bytes() and is given back by TakeStaging().
  void Start(Transport& transport, at::Tensor staging);
  // Goes on as far as it can. Whether anything happened; throws RunError.
  bool Advance(Transport& transport);
  bool complete() const { return complete_; }
  at::Tensor TakeStaging() { return std::move(staging_); }
  // The rank that the current phase waits for; -1 when there is none.
  int waiting_for() const;
  // Whether this rank has nothing to give for it, and only takes what another one sends.
  bool only_receives() const;
  // The start of the current phase.
  Clock::time_point progressed() const { return progressed_; }
  // Moves the clock on by time in which this process did not run.
  void Forgive(Clock::duration lost) { progressed_ += lost; }

  // Ends Wait(): normally (empty), or with a RunError of this text; a AlreadyReportedError where
  // `told`.
  void Finish(const std::string& error, bool told = false);
  // Gives up all transfers under way.
  void Cancel() { requests_.clear(); }

 private:
  struct Pending {
    Transfer::Direction direction;
    int peer;
    std::unique_ptr<TransportRequest> request;
  };
  void BeginPhase(Transport& transport);

  CollectiveSteps plan_;
  Drive drive_;
  at::Tensor staging_;
  std::vector<Transfer> transfers_;
  std::vector<Pending> requests_;
  int64_t phase_ = 0;
  bool complete_ = false;
  Clock::time_point progressed_;

  mutable std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  bool waited_for_ = false;
  std::string error_;
  bool told_ = false;
  Clock::time_point finished_;
};

}  // namespace equipoise
