#include "parallel/comm/thread_communicator.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "configs/base/error.h"
#include "tests/parallel/communicator_conformance.h"
#include "tests/parallel/run_ranks.h"

namespace equipoise {
namespace {

using namespace std::chrono_literals;

TEST_CASE("ranks as threads pass every conformance check", "[comm]") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const ConformanceCheck& check : ConformanceChecks()) {
      INFO(check.name << " on " << ranks << " ranks");
      CHECK_NOTHROW(RunRanks(ranks, check.run));
    }
  }
}

// What each rank's first failing operation says. `failed` hears of each.
template <class Body>
std::vector<std::string> Errors(int ranks, Body body, Arrivals& failed, CommOptions options) {
  std::vector<std::string> errors(ranks);
  Arrivals ended;
  RunRanks(
      ranks,
      [&](Communicator& world) {
        try {
          body(world);
        } catch (const RunError& error) {
          errors[world.rank()] = error.what();
          failed.Arrive();
        }
        // Leaving at once would tell the others more than a rank that hangs does.
        ended.Arrive();
        ended.WaitFor(ranks);
      },
      options);
  return errors;
}

// A rank whose thread does not run for half of it is taken for stopped: long on a busy machine.
constexpr CommOptions kSoon{.timeout = 3s};

TEST_CASE("a rank that never enters an operation is named on every other rank", "[comm]") {
  Arrivals failed;
  const auto body = [&](Communicator& world) {
    at::Tensor tensor = at::zeros({1000});
    world.AllReduce(tensor, ReduceOp::kSum).Wait();
    if (world.rank() == 3) return failed.WaitFor(3);
    // Rank 2 waits for rank 3 only through rank 1.
    if (world.rank() == 2) return world.Recv(tensor, 1).Wait();
    if (world.rank() == 1) return world.Recv(tensor, 3).Wait();
    world.AllReduce(tensor, ReduceOp::kSum).Wait();
  };
  const auto errors = Errors(4, body, failed, kSoon);
  INFO(errors[0] << "\n" << errors[1] << "\n" << errors[2]);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK_THAT(errors[rank], Catch::StartsWith("rank " + std::to_string(rank) + ": "));
    CHECK_THAT(errors[rank],
               Catch::Contains("rank 3 is running and has not entered it; the last it "
                               "entered was all_reduce #1 in group world"));
  }
  CHECK_THAT(errors[0], Catch::Contains("all_reduce #2 in group world (3.9 KiB)"));
  CHECK_THAT(errors[1], Catch::Contains("recv from rank 3 #1 in group world"));
  CHECK_THAT(errors[2], Catch::Contains("no answer from rank 1"));
  CHECK(errors[3].empty());
}

TEST_CASE("a rank that fails is named by those who wait for it, long before a deadline", "[comm]") {
  const auto start = std::chrono::steady_clock::now();
  const auto body = [](Communicator& world) {
    if (world.rank() == 1) throw DataError("disk full");
    Barrier(world);
  };
  CHECK_THROWS_WITH(RunRanks(3, body), "disk full");
  CHECK(std::chrono::steady_clock::now() - start < 60s);
}

TEST_CASE("two ends of different size fail with both sizes", "[comm]") {
  const auto body = [](Communicator& world) {
    at::Tensor tensor = at::zeros({world.rank() == 0 ? 4 : 5});
    if (world.rank() == 0) return world.Send(tensor, 1).Wait();
    world.Recv(tensor, 0).Wait();
  };
  CHECK_THROWS_WITH(RunRanks(2, body),
                    Catch::Contains("rank 0 sends 16 bytes where rank 1 expects 20"));
}

TEST_CASE("sends are synchronous", "[comm]") {
  // Both send first: this order works only by luck of buffering, so here it must not.
  Arrivals failed;
  const auto body = [](Communicator& world) {
    at::Tensor tensor = at::zeros({1});
    world.Send(tensor, 1 - world.rank()).Wait();
    world.Recv(tensor, 1 - world.rank()).Wait();
  };
  const auto errors = Errors(2, body, failed, kSoon);
  INFO(errors[0] << "\n" << errors[1]);
  CHECK_THAT(errors[0] + errors[1], Catch::Contains("their orders of operations differ"));
}

TEST_CASE("groups that are made one after another are counted, whatever their size", "[comm]") {
  constexpr int kGroups = 254;  // and two of all ranks
  std::vector<std::string> errors(4);
  RunRanks(4, [&](Communicator& world) {
    for (int i = 0; i < kGroups; ++i) {
      const auto part = world.Split(i % 3 == 0 ? world.rank() : world.rank() / 2, 0, "part");
      if (i % 50 == 0) Barrier(*part);
    }
    try {
      world.Split(0, 0, "last");
    } catch (const RunError& error) {
      errors[world.rank()] = error.what();
    }
  });
  CHECK(errors == std::vector<std::string>(
                      4,
                      "group last, a part of group world: its ranks have been in 256 groups "
                      "already, the most that there can be; start the run again"));
}

TEST_CASE("an operation after a failure fails too", "[comm]") {
  RunRanks(2,
           [](Communicator& world) {
             at::Tensor tensor = at::zeros({1});
             if (world.rank() == 1) return std::this_thread::sleep_for(500ms);
             std::string first, second;
             try {
               world.Recv(tensor, 1).Wait();
             } catch (const RunError& error) {
               first = error.what();
             }
             try {
               world.AllReduce(tensor, ReduceOp::kSum).Wait();
             } catch (const RunError& error) {
               second = error.what();
             }
             if (first.empty() ||
                 second.find("all_reduce #1 in group world (4 B): rank 1") == std::string::npos) {
               throw std::runtime_error("'" + first + "', '" + second + "'");
             }
           },
           {.timeout = 200ms});
}

}  // namespace
}  // namespace equipoise
