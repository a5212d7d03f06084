#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/comm/thread_communicator.h"

namespace equipoise {

// Calls `body(world)` once for each of `ranks` ranks, every rank in a thread of its own, and
// rethrows the first error. A rank whose body throws leaves, so the others fail instead of waiting.
// Catch2's assertions are not thread-safe: the body throws, or writes into a slot of its own rank.
// `wrap(world)` makes each rank's communicator of the one for threads.
template <class Wrap, class Body>
void RunRanksOver(int ranks, Wrap&& wrap, Body&& body, CommOptions options = {}) {
  std::vector<std::unique_ptr<Communicator>> worlds = MakeThreadCommunicators(ranks, options);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, world = std::move(worlds[rank])]() mutable {
      try {
        std::unique_ptr<Communicator> own;  // ends while the error unwinds, as in the program
        try {
          own = wrap(std::move(world));
          body(*own);
        } catch (...) {
          std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
          throw;
        }
      } catch (...) {  // NOLINT(bugprone-empty-catch): it is kept
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

template <class Body>
void RunRanks(int ranks, Body&& body, CommOptions options = {}) {
  const auto same = [](std::unique_ptr<Communicator> world) { return world; };
  RunRanksOver(ranks, same, std::forward<Body>(body), options);
}

// Ranks that wait for each other outside of communication, for a minute at most.
class Arrivals {
 public:
  void Arrive() { ++arrived_; }
  void WaitFor(int count) const {
    for (int i = 0; i < 6000 && arrived_ < count; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

 private:
  std::atomic<int> arrived_{0};
};

}  // namespace equipoise
