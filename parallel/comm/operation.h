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

// One message of an operation, to or from one peer.
struct Transfer {
  enum class Direction { kSend, kReceive };
  Direction direction;
  int peer;  // rank in the world
  std::byte* data;
  size_t bytes;
};

// An operation as a sequence of phases. All transfers of a phase run concurrently; the next phase
// begins when they are done.
struct CollectiveSteps {
  std::string text;  // "all_reduce #17 in group data (4.0 MiB)"
  Tag tag;
  size_t staging_bytes = 0;
  std::vector<at::Tensor> tensors;  // kept alive until it ends, or Operation::DropTensors()
  // Does the local work after phase `phase - 1` and lists the transfers of phase `phase`; false
  // when none are left. Called by the thread that drives the engine, with phase = 0, 1, ...
  std::function<bool(int64_t phase, std::byte* staging, std::vector<Transfer>& transfers)> next;
  // For an operation that a GPU runs, in place of `next`: makes a request that watches it;
  // destroying a request that is not done aborts the operation. `awaited`: the ranks of the world
  // that it needs, one peer or all other members of the group.
  std::function<std::unique_ptr<TransportRequest>()> watch;
  std::vector<int> awaited;
};

// An operation in an Engine. Wait() and Done() are for the compute thread; all else is for the
// thread that drives the engine.
class Operation : public Work::State {
 public:
  using Clock = Work::Clock;
  // Called when a thread begins to wait for this operation; progresses it, and may return before
  // its end.
  using Drive = std::function<void(const Operation&)>;
  Operation(CollectiveSteps plan, Drive drive)
      : plan_(std::move(plan)), drive_(std::move(drive)), progressed_(Clock::now()) {}

  void Wait() override;
  bool Done() const override;
  Clock::time_point FinishedAt() const override;

  // Whether the compute thread is inside Wait().
  bool waited_for() const;
  const std::string& text() const { return plan_.text; }
  const Tag& tag() const { return plan_.tag; }
  size_t staging_bytes() const { return plan_.staging_bytes; }
  // The ranks that a GPU's operation needs; empty where the engine moves the bytes itself.
  const std::vector<int>& awaited() const { return plan_.awaited; }

  // Begins the first phase. `staging` [staging_bytes()] of bytes is returned by TakeStaging().
  void Start(Transport& transport, at::Tensor staging);
  // Progresses as far as possible; returns whether anything happened. Throws RunError.
  bool Advance(Transport& transport);
  bool complete() const { return complete_; }
  at::Tensor TakeStaging() { return std::move(staging_); }
  // The rank that the current phase waits for; -1 when there is none.
  int waiting_for() const;
  // Whether only receives of a point-to-point operation are outstanding.
  bool only_receives() const;
  // When the current phase started, or before the first the operation was made; the deadline counts
  // from here.
  Clock::time_point progressed() const { return progressed_; }
  // Extends the deadline by time in which this process did not run.
  void Forgive(Clock::duration lost) { progressed_ += lost; }

  // Ends Wait(): normally where `error` is empty, else with a RunError of that text, or with an
  // AlreadyReportedError where `reported`.
  void Finish(const std::string& error, bool reported = false);
  // Abandons all transfers under way, and what a GPU runs of it.
  void Cancel();

  // Keeps the tensors alive no longer: for an operation that a GPU runs, when the stream to which
  // their memory belongs has been put behind it. Any thread.
  void DropTensors();

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

  mutable std::mutex mutex_;  // guards the plan's tensors too
  std::condition_variable ended_;
  bool done_ = false;
  bool waited_for_ = false;
  std::string error_;
  bool reported_ = false;
  Clock::time_point finished_;
};

}  // namespace equipoise
