#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/operation.h"
#include "parallel/comm/transport.h"

namespace equipoise {

// The progress engine of a rank, which drives its transport: starts submitted operations,
// progresses them, watches their deadlines, and exchanges heartbeats with every other rank. A
// communication thread does so while the rank computes. Where the transport moves bytes only while
// it is polled, the compute thread starts its operations and progresses them itself while it waits
// for one, and the communication thread is woken by ProgressInBackground() only: waking it takes a
// core from a rank at work.
//
// Transfers between two ranks run at once; collectives of one group run one after another, in the
// order of submission. When an operation passes its deadline or another rank reports a failure,
// every operation of this rank, present and future, fails with a text of its own that names the
// faulty rank.
class Engine {
 public:
  Engine(std::unique_ptr<Transport> transport, CommOptions options);
  ~Engine() { Stop(); }

  // Publishes that this rank has left and ends the thread. Operations under way fail.
  void Stop();

  int rank() const { return rank_; }
  int size() const { return size_; }
  const CommOptions& options() const { return options_; }

  // Starts an operation, or queues it behind the earlier collectives of its group.
  std::shared_ptr<Operation> Submit(CollectiveSteps plan);
  // Sets what the rank computes from now on; published with its next heartbeat.
  void Announce(const std::string& compute);
  // See Communicator.
  void ProgressInBackground();

  // The first group number that this rank has not used. Of the compute thread.
  int next_group() const { return next_group_; }
  // Marks a group number as used, after the members of a group have agreed on it.
  // REQUIRES: number >= next_group().
  void ReserveGroup(int number) { next_group_ = number + 1; }

  struct ExitStatus {
    int exit_code;       // of the first rank that left
    bool root_reported;  // rank 0 has reported its side too
  };
  // Publishes `report` to all other ranks and returns when each of them is about to exit too, is
  // unable to (it has stopped), or `grace` is over.
  ExitStatus Leave(const ExitReport& report, std::chrono::milliseconds grace);

 private:
  using Clock = Work::Clock;
  void Run();
  bool MovesAlone(const Operation& operation) const;
  void Drive(const Operation& operation);
  std::chrono::microseconds Round();
  bool Guard(const std::function<bool()>& step);
  bool Step();
  std::chrono::microseconds Pause(Clock::time_point now) const;
  bool TakeSubmitted();
  void Start(const std::shared_ptr<Operation>& operation);
  bool AdvanceAll();
  void Complete(const std::shared_ptr<Operation>& operation);
  void CheckDeadlines(Clock::time_point now);
  void CheckOthers(Clock::time_point now);
  void Fail(const FailureReport& failure, const std::string& noticed_by);
  void FailOne(const std::shared_ptr<Operation>& operation);
  void CancelFailed();
  bool IsReported() const;
  bool AnyWatched() const;
  int Behind(const Operation& operation) const;
  int WaitingFor(const Operation& operation) const;
  FailureReport Explain(const Operation& operation, Clock::time_point now) const;
  void SendHeartbeat(Clock::time_point now);
  void ForgiveLostTime(Clock::time_point now);
  void UpdateLeaving(Clock::time_point now);
  void EndIfStuck(Clock::time_point now);
  void RefreshStatus();
  Liveness LivenessAt(Clock::time_point now) const;
  at::Tensor Staging(size_t bytes);

  const std::unique_ptr<Transport> transport_;
  const CommOptions options_;
  const int rank_, size_;
  const std::chrono::milliseconds heartbeat_interval_;
  const std::chrono::milliseconds liveness_limit_;

  int next_group_ = 2;  // 0 and 1: GroupCommunicator::Everyone

  std::mutex mutex_;  // guards what the two threads share, to left_
  std::deque<std::shared_ptr<Operation>> submitted_;
  bool stopping_ = false;
  bool leaving_ = false;
  ExitReport exit_report_;
  bool others_ready_ = false;
  bool root_reported_ = false;
  std::condition_variable left_;

  std::mutex computes_mutex_;  // taken last
  std::string computes_;

  std::atomic<int> drivers_{0};  // threads in Drive(); the communication thread then does nothing
  // Guards the transport, except Sleep() and Wake(), and all below. Taken before mutex_.
  std::mutex driving_;
  std::deque<std::shared_ptr<Operation>> taken_;  // from submitted_, to be started
  std::vector<std::shared_ptr<Operation>> active_;
  std::map<int, std::deque<std::shared_ptr<Operation>>> collectives_;  // by group; front is active
  std::vector<at::Tensor> staging_;                                    // free buffers
  std::vector<std::shared_ptr<Operation>> failed_;                     // keep their tensors alive
  size_t cancelled_ = 0;                                               // of failed_
  RankStatus status_;
  RankViews views_;
  std::string entered_;     // text of the operation entered last
  std::string noticed_by_;  // the rank that noticed the failure first; empty: this rank
  bool reported_for_all_ = false;
  Clock::time_point failed_at_;
  bool called_stuck_ = false;
  Clock::time_point next_heartbeat_, last_step_, last_progress_;
  bool publish_now_ = false;

  std::thread thread_;
};

}  // namespace equipoise
