#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel/comm/thread_communicator.h"

namespace equipoise {

// Calls `body(world)` once for each of `ranks` ranks, every rank in a thread of its own, and
// rethrows the first error. A rank whose body throws leaves, so the others fail instead of waiting.
// Catch2's assertions are not thread-safe: the body throws, or writes into a slot of its own rank.
template <class Body>
void RunRanks(int ranks, Body&& body, CommOptions options = {}) {
  std::vector<std::unique_ptr<Communicator>> worlds = MakeThreadCommunicators(ranks, options);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, world = std::move(worlds[rank])]() mutable {
      try {
        body(*world);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      world.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace equipoise
