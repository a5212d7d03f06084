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

// Drives a rank's transport: starts operations as they come, moves them on, watches their
// deadlines, and exchanges a sign of life with every other rank. A thread of its own does so while
// the rank computes. Where the transport moves bytes only while it is called, the rank's thread
// starts its operations and moves them on itself while it waits for one, and the engine's thread is
// woken by ProgressInBackground() alone: waking it takes a core from a rank at work.
//
// Transfers between two ranks run at once; collectives of one group one after another, in the order
// given. When an operation passes its deadline or another rank reports a failure, every operation
// of this rank, present and future, fails with a text of its own that names the faulty rank.
class Engine {
 public:
  Engine(std::unique_ptr<Transport> transport, CommOptions options);
  ~Engine() { Stop(); }

  // Tells the others that this rank has left and ends the thread. Operations under way fail.
  void Stop();

  int rank() const { return rank_; }
  int size() const { return size_; }
  const CommOptions& options() const { return options_; }

  std::shared_ptr<Operation> Submit(CollectiveSteps plan);
  // What the rank computes from now on, told to the others with its next sign of life.
  void Announce(const std::string& compute);
  void ProgressInBackground();

  // The first group number that this rank has not used; Split() keeps it above those of all
  // members.
  int next_group = 2;

  struct ExitStatus {
    int exit_code;  // of the first rank that left
    bool heard;     // rank 0 has reported its side too
  };
  // Reports `word` to all other ranks and returns when each of them is about to end too, cannot
  // (it has stopped), or `grace` is over.
  ExitStatus Leave(const ExitReport& word, std::chrono::milliseconds grace);

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
  void Fail(const FailureReport& verdict, const std::string& by);
  void FailOne(Operation& operation);
  bool Told() const;
  bool AnyWatched() const;
  int Behind(const Operation& operation) const;
  int WaitingFor(const Operation& operation) const;
  FailureReport Explain(const Operation& operation, Clock::time_point now) const;
  void SendHeartbeat(Clock::time_point now);
  void ForgiveLostTime(Clock::time_point now);
  void UpdateLeaving(Clock::time_point now);
  void RefreshStatus();
  Liveness LivenessAt(Clock::time_point now) const;
  at::Tensor Staging(size_t bytes);

  const std::unique_ptr<Transport> transport_;
  const CommOptions options_;
  const int rank_, size_;
  const std::chrono::milliseconds beat_;
  const std::chrono::milliseconds liveness_limit_;

  std::mutex mutex_;  // guards what the two threads share
  std::deque<std::shared_ptr<Operation>> submitted_;
  bool stopping_ = false;
  bool leaving_ = false;
  ExitReport word_;
  bool others_ready_ = false;
  bool heard_ = false;
  std::condition_variable left_;

  std::mutex computes_mutex_;  // taken last
  std::string computes_;

  std::atomic<int> drivers_{0};  // threads in Drive(): the communication thread keeps out of it
  // Guards the transport, but for Sleep() and Wake(), and all below. Taken before mutex_.
  std::mutex driving_;
  std::deque<std::shared_ptr<Operation>> taken_;  // to be started
  std::vector<std::shared_ptr<Operation>> active_;
  std::map<int, std::deque<std::shared_ptr<Operation>>> collectives_;  // by group; front is active
  std::vector<at::Tensor> staging_;                                    // free buffers
  std::vector<std::shared_ptr<Operation>> failed_;                     // keep their tensors
  RankStatus status_;
  RankViews views_;
  std::string entered_;  // text of the operation entered last
  std::string by_;       // who noticed the failure, empty: this rank
  bool told_for_all_ = false;
  Clock::time_point next_beat_, last_step_, last_progress_;
  bool publish_now_ = false;

  std::thread thread_;
};

}  // namespace equipoise
